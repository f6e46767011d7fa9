//! Runs of an agent in the console: started, watched, stopped and resumed in a browser.

use serde_json::json;

use super::console::{assert_clean, log_in, url};
use crate::agent::{ScriptedModel, call};
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, OWNER};

#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn runs_are_started_watched_stopped_and_resumed() {
    let folder = tempfile::TempDir::new().expect("the temporary folder can be written to");
    let (file, rest) = (folder.path().join("go"), folder.path().join("rest"));
    let wait = json!({ "fault": "until", "message": file });
    let model = ScriptedModel::start(&json!([
        { "text": "Let me <b>see</b>.", "calls": [call("c1", "echo", wait.clone())] },
        { "text": "Once more.", "calls": [call("c2", "echo", wait)] },
        { "text": "All is <i>well</i>, and that is all.", "waits": rest },
    ]));
    let gateway = Gateway::start(&json!({ "agent": { "model": model.model(), "budgets": { "calls": 9 } } }));
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/runs"));
    tab.fill("#task", "Look around");
    tab.follow("form[data-operation=startRun] button");
    assert!(tab.path().starts_with("/runs/"), "{}", tab.path());
    // The turn and its call appear while the call waits, without a new page.
    tab.mark();
    tab.wait("document.querySelector('.timeline')?.innerText.includes('Let me <b>see</b>.')");
    tab.wait("document.querySelector('.timeline').innerText.includes('echo')");
    assert_eq!(tab.evaluate("document.querySelectorAll('.timeline b').length"), 0);
    tab.wait("document.querySelector('#run table').innerText.includes('calls')");
    assert!(
        tab.evaluate("document.querySelector('main').dataset.before === '1'").as_bool().expect("a boolean")
    );
    super::console::save(&mut tab, "/run-active", 1280, false);
    tab.follow("form[data-operation=stopRun] button");
    assert!(tab.text(".notice.ok").contains("is being stopped"), "{}", tab.text("main"));
    tab.wait("document.querySelector('form[data-operation=startRun] button')?.innerText === 'Resume'");
    fs_err::write(&file, "").expect("the file can be written");
    tab.follow("form[data-operation=startRun] button");
    // The text appears while the model writes it.
    tab.wait("document.querySelector('[data-writing]')?.innerText.includes('All is')");
    let is_written =
        "document.querySelector('.timeline')?.innerText.includes('All is <i>well</i>, and that is all.')";
    assert_eq!(tab.evaluate(&format!("Boolean({is_written})")), false);
    fs_err::write(&rest, "").expect("the file can be written");
    tab.wait(is_written);
    tab.wait("document.querySelector('h1').innerText.includes('done')");
    tab.wait("document.querySelector('[data-follow]').hidden");
    super::console::save(&mut tab, "/run-ended", 1280, false);
    assert_eq!(tab.accessibility(), Vec::<String>::new());
    tab.follow("#run a[href^='/executions?session=']");
    assert_eq!(tab.evaluate("document.querySelectorAll('#executions .calls tbody tr').length"), 2);
    assert_clean(&tab, "runs");
}
