//! One struct per page, with its template, and the short forms of REST answers that templates use.

use askama::Template;
use serde_json::Value as Json;

use crate::assets::Assets;
use crate::difference::{DifferenceRow, compare};
use crate::escape::json_for_form;
use crate::form::{Field, Kind, MAX_FIELDS, ToolForm};
use crate::frame::{Frame, Notice, Theme};
use crate::rest::{
    AccessChange, Caller, CallerDecision, Configuration, Execution, Figures, Found, HeldBack, Imported, Item,
    Key, LogState, Matrix, Outcome, Policy, PolicyCheck, PolicyReplay, PolicyVersion, Problem, Question,
    RecordedError, Run, Server, Step, TestedServer, Tool, Totals, Why,
};
use crate::schema::SchemaRow;
use crate::text;

mod result;
mod run;

pub use result::{Part, Table, TreeRowKind};

/// The sources of all templates, for tests.
#[doc(hidden)]
pub const TEMPLATES: [&str; 29] = [
    include_str!("../templates/caller.html"),
    include_str!("../templates/callers.html"),
    include_str!("../templates/connect.html"),
    include_str!("../templates/error.html"),
    include_str!("../templates/execution.html"),
    include_str!("../templates/executions.html"),
    include_str!("../templates/inbox.html"),
    include_str!("../templates/key.html"),
    include_str!("../templates/layout.html"),
    include_str!("../templates/logged_in.html"),
    include_str!("../templates/login.html"),
    include_str!("../templates/new_server.html"),
    include_str!("../templates/new_tool.html"),
    include_str!("../templates/outcome.html"),
    include_str!("../templates/overview.html"),
    include_str!("../templates/parts.html"),
    include_str!("../templates/policy.html"),
    include_str!("../templates/question.html"),
    include_str!("../templates/question_page.html"),
    include_str!("../templates/resource.html"),
    include_str!("../templates/run.html"),
    include_str!("../templates/runs.html"),
    include_str!("../templates/search.html"),
    include_str!("../templates/server.html"),
    include_str!("../templates/servers.html"),
    include_str!("../templates/tool.html"),
    include_str!("../templates/tools.html"),
    include_str!("../templates/waterfall.html"),
    include_str!("../templates/why.html"),
];

/// Categories of tools.
pub const CATEGORIES: [&str; 5] = ["query", "mutation", "generation", "analysis", "communication"];
/// Rows and columns of the bars of a waterfall.
const WATERFALL_WIDTH: u64 = 1_000;

/// Declares a page: its fields, and the template that renders it.
macro_rules! page {
    ($($(#[$about:meta])* $name:ident $file:literal { $($member:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Template)]
        #[template(path = $file)]
        pub struct $name { $(pub $member: $kind,)* }
    )*};
}

page! {
    /// The form of a login, with the labels and paths of logins at issuers.
    LoginPage "login.html" {
        theme: Theme,
        assets: &'static Assets,
        heading: String,
        failure: Option<Notice>,
        form: bool,
        issuers: Vec<(String, String)>,
        next: String,
    }
    /// Leads on to a page after a login at an issuer.
    LoggedInPage "logged_in.html" { theme: Theme, assets: &'static Assets, next: String, }
    ErrorPage "error.html" {
        frame: Frame,
        heading: String,
        text: String,
        hint: Option<String>,
        problems: Vec<Problem>,
        back: String,
    }
    OverviewPage "overview.html" {
        frame: Frame,
        since: String,
        periods: [(&'static str, &'static str); 3],
        figures: Option<Figures>,
        questions: Vec<Question>,
        servers: Option<Vec<Server>>,
        healthy: usize,
        log: Option<LogState>,
        configuration: Option<Configuration>,
        running: Vec<Execution>,
        calls: Option<Vec<Execution>>,
    }
    ServersPage "servers.html" { frame: Frame, servers: Vec<Server>, }
    ServerPage "server.html" {
        frame: Frame,
        server: Server,
        figures: Option<Figures>,
        waiting: Vec<HeldBack>,
        rejected: Vec<HeldBack>,
        stderr: Option<Vec<String>>,
        prompts: Vec<Item>,
        resources: Vec<Item>,
    }
    /// The form of a new server, or of a changed one, with the result of a test.
    NewServerPage "new_server.html" {
        frame: Frame,
        exists: bool,
        name: String,
        command: String,
        env: String,
        url: String,
        headers: String,
        text: String,
        entry: String,
        failure: Option<Notice>,
        problems: Vec<Problem>,
        test: Option<TestedServer>,
        imported: Option<Imported>,
    }
    ResourcePage "resource.html" { frame: Frame, server: String, uri: String, outcome: Outcome, }
    ToolsPage "tools.html" {
        frame: Frame,
        query: ToolQuery,
        servers: Vec<String>,
        found: Option<Found>,
        rows: Vec<ToolRow>,
        next: Option<String>,
    }
    ToolPage "tool.html" {
        frame: Frame,
        tool: Tool,
        figures: Option<Figures>,
        failure: Option<Notice>,
        as_json: bool,
        arguments: String,
        fields: Vec<Field>,
        schema: Vec<SchemaRow>,
        why_for: String,
        why: Option<Why>,
        outcome: Option<Outcome>,
        callers: Option<Vec<CallerDecision>>,
        calls: Option<Vec<Execution>>,
    }
    NewToolPage "new_tool.html" { frame: Frame, }
    ExecutionsPage "executions.html" {
        frame: Frame,
        query: ExecutionQuery,
        figures: Option<Figures>,
        running: Vec<Execution>,
        calls: Vec<Execution>,
        next: Option<String>,
    }
    ExecutionPage "execution.html" {
        frame: Frame,
        call: Execution,
        steps: Vec<Bar>,
        arguments: Option<Body>,
        output: Option<Body>,
        again: Option<String>,
        around: Vec<Execution>,
    }
    InboxPage "inbox.html" { frame: Frame, history: bool, questions: Vec<Question>, }
    QuestionPage "question_page.html" { frame: Frame, question: Question, calls: Option<Vec<Execution>>, }
    RunsPage "runs.html" { frame: Frame, failure: Option<Notice>, runs: Vec<Run>, next: Option<String>, }
    RunPage "run.html" { frame: Frame, run: Run, }
    PolicyPage "policy.html" {
        frame: Frame,
        query: PolicyQuery,
        failure: Option<Notice>,
        why: Option<Why>,
        policy: Option<Policy>,
        text: String,
        replayed: bool,
        check: Option<PolicyCheck>,
        replay: Option<PolicyReplay>,
        versions: Vec<PolicyVersion>,
        matrix: Option<Matrix>,
    }
    CallersPage "callers.html" { frame: Frame, callers: Vec<Caller>, next: Option<String>, }
    CallerPage "caller.html" { frame: Frame, shown: Caller, keys: Option<Vec<Key>>, }
    /// A key that is shown once.
    KeyPage "key.html" { frame: Frame, of: String, key: String, back: String, }
    ConnectPage "connect.html" {
        frame: Frame,
        origin: String,
        endpoint: String,
        profiles: Vec<(String, String, bool)>,
        clients: Vec<Client>,
    }
    SearchPage "search.html" { frame: Frame, q: String, groups: Vec<(&'static str, Vec<SearchHit>)>, }
}

/// Filters of the page of tools, as in its URL.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default)]
pub struct ToolQuery {
    pub q: String,
    pub server: String,
    pub category: String,
    pub tag: String,
    pub state: String,
    pub risk: String,
    pub cursor: String,
}

impl ToolQuery {
    pub fn is_filtered(&self) -> bool {
        [&self.q, &self.server, &self.category, &self.tag, &self.state, &self.risk]
            .into_iter()
            .any(|value| !value.is_empty())
    }
}

/// A tool in a list, with its score if it was searched for.
#[derive(Debug)]
pub struct ToolRow {
    pub tool: Tool,
    pub score: Option<f64>,
    /// Score of the first result.
    pub best: f64,
}

impl ToolRow {
    fn width(&self) -> String {
        let share = self.score.unwrap_or_default() / self.best.max(f64::MIN_POSITIVE);
        format!("{:.1}", (share * 40.0).clamp(1.0, 40.0))
    }
}

/// Filters of the page of executions, as in its URL.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default)]
pub struct ExecutionQuery {
    pub tool: String,
    pub caller: String,
    pub server: String,
    pub status: String,
    pub since: String,
    pub until: String,
    pub grep: String,
    pub code: String,
    pub decision: String,
    pub rule: String,
    pub session: String,
    pub trace: String,
    pub correlation: String,
    pub slower: String,
    pub kind: String,
    pub cursor: String,
}

impl ExecutionQuery {
    /// Names and values of the filters that are set, without the cursor.
    pub fn set(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("tool", &self.tool),
            ("caller", &self.caller),
            ("server", &self.server),
            ("status", &self.status),
            ("since", &self.since),
            ("until", &self.until),
            ("grep", &self.grep),
            ("code", &self.code),
            ("decision", &self.decision),
            ("rule", &self.rule),
            ("session", &self.session),
            ("trace", &self.trace),
            ("correlation", &self.correlation),
            ("slower", &self.slower),
            ("kind", &self.kind),
        ];
        all.into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.as_str()))
            .collect()
    }

    fn is_filtered(&self) -> bool {
        !self.set().is_empty()
    }

    fn has_more(&self) -> bool {
        let first = ["tool", "caller", "server", "status", "since", "grep"];
        self.set().iter().any(|(name, _)| !first.contains(name))
    }

    fn has_other_since(&self) -> bool {
        !["", "15m", "1h", "6h", "1d", "7d", "today", "yesterday"].contains(&self.since.as_str())
    }
}

/// Parameters of the page of the policy, as in its URL.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default)]
pub struct PolicyQuery {
    pub caller: String,
    pub tool: String,
    pub version: String,
    pub mtool: String,
    pub mserver: String,
}

/// A recorded body.
#[derive(Debug)]
pub struct Body {
    pub text: String,
    pub note: Option<String>,
}

impl Body {
    /// The body of a record: whole, or the part that was recorded.
    pub fn of(whole: Option<&Json>, cut: Option<&crate::rest::Cut>) -> Option<Self> {
        if let Some(cut) = cut {
            let text = text::cut(cut.head.clone(), text::MAX_SHOWN);
            let hash = cut.sha256.as_deref().or(cut.blake3.as_deref()).unwrap_or_default();
            let note =
                format!("Of {} only this was recorded. Hash of all of it: {hash}", text::bytes(cut.length));
            return Some(Self { text, note: Some(note) });
        }
        whole.map(|whole| Self { text: text::pretty(whole), note: None })
    }
}

/// A client of MCP, with the configuration to paste into it.
#[derive(Debug)]
pub struct Client {
    pub id: &'static str,
    pub name: &'static str,
    pub command: String,
    pub place: &'static str,
    pub paste: String,
}

/// A hit of the search over everything.
#[derive(Debug)]
pub struct SearchHit {
    pub path: String,
    pub name: String,
    pub about: String,
}

/// Compares the values of an option and of a filter.
pub fn same(option: impl AsRef<str>, value: &str) -> bool {
    option.as_ref() == value
}

/// Colour of a state, a status, a decision or a class.
pub fn tone(label: &str) -> &'static str {
    match label {
        "ready" | "success" | "allow" | "ok" | "writable" | "intact" | "approved" | "answered"
        | "completed" | "low" | "permit" | "compatible" => "ok",
        "connecting" | "idle" | "running" | "abandoned" | "ask" | "login needed" | "needed" | "medium"
        | "interrupted" | "open" | "cancelling" | "undecided" | "quarantined" | "never approved"
        | "active" | "unknown" | "lost" => "warn",
        "down" | "unavailable" | "error" | "failed" | "denied" | "deny" | "damaged" | "not writable"
        | "high" | "breaking" | "suspicious" | "refused" | "declined" | "removed" | "forbid" | "expired" => {
            "bad"
        }
        _ => "plain",
    }
}

/// Indented JSON for a field of a form: hidden characters are escaped, so that it comes back unchanged.
pub fn form_json(value: &Json) -> String {
    json_for_form(&serde_json::to_string_pretty(value).unwrap_or_default())
}

impl Execution {
    /// Status for people.
    pub fn shown_status(&self) -> &str {
        let denied = self.begin.as_ref().is_some_and(|begin| begin.decision == "deny");
        match (self.state.as_str(), self.status.as_str()) {
            ("running" | "lost", _) => &self.state,
            (_, "error") if denied => "denied",
            (_, status) => status,
        }
    }

    pub fn is_tainted(&self) -> bool {
        self.begin.as_ref().is_some_and(|begin| begin.tainted)
    }

    fn short_arguments(&self) -> String {
        let Some(begin) = &self.begin else { return String::new() };
        match (&begin.arguments, &begin.arguments_cut) {
            (Some(arguments), _) => text::inline(arguments, 120),
            (None, Some(cut)) => text::brief(&cut.head, 120),
            (None, None) => String::new(),
        }
    }
}

impl RecordedError {
    /// Tells if the tool had an effect.
    fn effect(&self) -> &'static str {
        match self.outcome.as_str() {
            "not_executed" | "not_started" | "none" => "The tool was not called.",
            "unknown" => "It is unknown whether the tool had an effect.",
            "executed" => "The tool was called.",
            _ => "",
        }
    }
}

/// A bar of a waterfall.
#[derive(Debug, Clone)]
pub struct Bar {
    pub stage: String,
    pub note: Option<String>,
    pub micros: u64,
    pub failed: bool,
    pub x: u64,
    pub width: u64,
}

/// The bars of the stages of a call.
pub fn waterfall(steps: &[Step]) -> Vec<Bar> {
    let end = steps.iter().map(|step| step.start + step.micros).max().unwrap_or_default().max(1);
    let scaled = |micros: u64| micros.saturating_mul(WATERFALL_WIDTH) / end;
    let bar = |step: &Step| Bar {
        stage: step.stage.clone(),
        note: step.note.clone(),
        micros: step.micros,
        failed: step.failed,
        x: scaled(step.start).min(WATERFALL_WIDTH - 3),
        // Short stages stay visible.
        width: scaled(step.micros).max(3),
    };
    steps.iter().map(bar).collect()
}

impl Outcome {
    fn call_id(&self) -> Option<&str> {
        self.metadata["callId"].as_str()
    }

    fn waterfall(&self) -> Vec<Bar> {
        waterfall(&self.steps)
    }

    fn parts(&self) -> Vec<Part> {
        result::parts(&self.data)
    }
}

impl Server {
    /// Milliseconds until the next try to connect, if there is one to wait for.
    fn next_try(&self) -> Option<u64> {
        self.retry_in_ms.filter(|wait| *wait > 0)
    }
}

impl LogState {
    /// State of the hash chain.
    fn chain(&self) -> &str {
        if self.verified.state == "never" { "not checked yet" } else { &self.verified.state }
    }
}

impl HeldBack {
    fn difference(&self) -> Vec<DifferenceRow> {
        compare(self.was.as_ref(), self.is.as_ref())
    }

    /// The body that names this definition by its hash.
    fn selection(&self) -> String {
        json_for_form(&serde_json::json!([{ "name": self.name, "hash": self.hash }]).to_string())
    }
}

impl Tool {
    fn is_editable(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.editable)
    }

    /// Limits in words.
    fn shown_limits(&self) -> Vec<(&'static str, String)> {
        let number = |name: &str| self.limits[name].as_u64();
        let mut shown = Vec::new();
        shown.extend(number("timeoutMs").map(|value| ("Timeout", text::millis(value))));
        shown.extend(number("maxInstances").map(|value| ("At the same time", value.to_string())));
        shown.extend(number("maxOutputBytes").map(|value| ("Largest result", text::bytes(value))));
        let rate = &self.limits["rateLimit"];
        if let (Some(calls), Some(window)) = (rate["maxCalls"].as_u64(), rate["windowMs"].as_u64()) {
            shown.push(("Rate limit", format!("{calls} calls per {}", text::millis(window))));
        }
        shown.extend(number("cacheTtlMs").map(|value| ("Cached for", text::millis(value))));
        shown
    }
}

impl Question {
    pub fn is_approval(&self) -> bool {
        self.kind != "human_input"
    }

    pub fn is_open(&self) -> bool {
        self.state.as_deref().is_none_or(|state| state == "open")
    }

    pub fn path(&self) -> String {
        let kind = if self.is_approval() { "approval" } else { "input" };
        format!("/inbox/{kind}-{}", text::url(&self.id))
    }

    /// The arguments of the call to approve, whole if the page has them.
    pub fn shown_arguments(&self) -> String {
        if let Some(call) = self.call.as_ref().filter(|call| !call.arguments.is_null()) {
            return serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
        }
        let arguments = self.full_arguments.as_ref().or(self.arguments.as_ref());
        arguments.cloned().unwrap_or_default()
    }

    /// The fields of an answer that has a schema. Empty if it needs more than fields: then it is entered as JSON.
    pub fn fields(&self) -> Vec<Field> {
        let Some(schema) = &self.schema else { return Vec::new() };
        let mut fields = ToolForm::new(schema).fields();
        let is_more = |field: &Field| {
            matches!(field.kind, Kind::Group | Kind::List | Kind::Variants | Kind::End | Kind::ListEnd)
        };
        if fields.iter().any(is_more) || fields.len() >= MAX_FIELDS {
            return Vec::new();
        }
        // Several questions can be on a page.
        fields.iter_mut().for_each(|field| field.id = format!("{}-{}", field.id, self.id));
        fields
    }

    /// Returns true if the arguments are longer than the part on the page.
    pub fn is_cut(&self) -> bool {
        self.shortened && self.full_arguments.is_none() && self.call.is_none()
    }

    pub fn answer_label(&self) -> &str {
        match (self.approved, self.declined) {
            (Some(true), _) => "approved",
            (Some(false), _) => "refused",
            (None, Some(true)) => "declined",
            _ => self.state.as_deref().unwrap_or("open"),
        }
    }
}

impl PolicyReplay {
    fn is_harmless(&self) -> bool {
        self.ok && self.calls.flips.is_empty()
    }
}

impl AccessChange {
    fn who(&self) -> String {
        match (&self.caller, &self.group) {
            (Some(caller), _) => caller.clone(),
            (None, Some(group)) => format!("group {group}"),
            (None, None) => String::new(),
        }
    }
}

/// A tool of the matrix, with the decision for each caller.
struct MatrixLine {
    tool: String,
    cells: Vec<MatrixCell>,
}

struct MatrixCell {
    decision: String,
    /// `None` for a group, because `why` is about callers.
    caller: Option<String>,
}

impl Matrix {
    fn lines(&self) -> Vec<MatrixLine> {
        let cell = |at: usize, row: &crate::rest::MatrixRow| MatrixCell {
            decision: row.decisions.get(at).cloned().unwrap_or_default(),
            caller: (row.kind != "group").then(|| row.caller.clone()),
        };
        let line = |(at, tool): (usize, &String)| MatrixLine {
            tool: tool.clone(),
            cells: self.rows.iter().map(|row| cell(at, row)).collect(),
        };
        self.tools.iter().enumerate().map(line).collect()
    }
}

impl Caller {
    fn first_permissions(&self) -> &[String] {
        &self.permissions[..self.permissions.len().min(4)]
    }

    fn group_names(&self) -> Vec<String> {
        let name =
            |group: &Json| group.as_str().or_else(|| group["name"].as_str()).unwrap_or_default().to_owned();
        self.groups.iter().map(name).collect()
    }

    fn is_editable(&self) -> bool {
        self.editable.unwrap_or_else(|| self.source.as_deref() == Some("made"))
    }

    fn origin(&self) -> String {
        match (&self.by, self.is_editable()) {
            (Some(by), _) => format!("{by} (at run time)"),
            (None, true) => "at run time".to_owned(),
            (None, false) => "the configuration".to_owned(),
        }
    }
}

impl Totals {
    fn time(&self, micros: &Option<u64>) -> String {
        micros.map_or_else(|| "–".to_owned(), text::micros)
    }
}

/// The bars of the calls of a period.
struct Chart {
    bars: Vec<ChartBar>,
    most: u64,
    label: String,
}

struct ChartBar {
    x: String,
    width: String,
    top: String,
    height: String,
    failed_top: String,
    failed_height: f64,
    title: String,
}

impl Figures {
    /// Share of all calls.
    fn share(&self, part: &u64) -> String {
        match self.total.calls {
            0 => "–".to_owned(),
            calls => format!("{:.1} %", *part as f64 * 100.0 / calls as f64),
        }
    }

    /// Calls per second.
    fn rate(&self) -> String {
        let seconds = self.step.saturating_mul(self.steps.len() as u64).max(1);
        let rate = self.total.calls as f64 / seconds as f64;
        if rate >= 0.1 { format!("{rate:.1} per second") } else { format!("{:.1} per hour", rate * 3_600.0) }
    }

    fn step_label(&self) -> String {
        text::micros(self.step.saturating_mul(1_000_000))
    }

    /// Time of the first step.
    fn start(&self) -> &str {
        self.steps.first().map_or(&self.since, |step| &step.time)
    }

    fn chart(&self) -> Chart {
        const HEIGHT: f64 = 92.0;
        const WIDTH: f64 = 600.0;
        let most = self.steps.iter().map(|step| step.figures.calls).max().unwrap_or_default();
        let width = WIDTH / self.steps.len().max(1) as f64;
        let scaled = |calls: u64| calls as f64 / most.max(1) as f64 * HEIGHT;
        let bar = |(at, step): (usize, &crate::rest::FigureStep)| {
            let (calls, failed) = (scaled(step.figures.calls), scaled(step.figures.failed));
            ChartBar {
                x: format!("{:.2}", at as f64 * width),
                width: format!("{:.2}", (width - 1.0).max(width * 0.7)),
                top: format!("{:.2}", 95.0 - calls),
                height: format!("{calls:.2}"),
                failed_top: format!("{:.2}", 95.0 - failed),
                failed_height: failed,
                title: format!(
                    "{}: {} calls, {} failed",
                    text::clock(&step.time),
                    step.figures.calls,
                    step.figures.failed
                ),
            }
        };
        let bars =
            self.steps.iter().enumerate().filter(|(_, step)| step.figures.calls > 0).map(bar).collect();
        let label = format!("{} calls, {} failed", self.total.calls, self.total.failed);
        Chart { bars, most, label }
    }

    /// Points of a line of 240 × 36.
    fn sparkline(&self) -> String {
        let most = self.steps.iter().map(|step| step.figures.calls).max().unwrap_or_default().max(1);
        let width = 240.0 / self.steps.len().saturating_sub(1).max(1) as f64;
        let point = |(at, step): (usize, &crate::rest::FigureStep)| {
            format!("{:.1},{:.1}", at as f64 * width, 34.0 - step.figures.calls as f64 / most as f64 * 32.0)
        };
        self.steps.iter().enumerate().map(point).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests;
