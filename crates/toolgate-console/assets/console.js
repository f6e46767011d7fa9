// Makes pages live. Every page works without it.
//
// It never turns text into markup: the one place that parses HTML takes whole pages of this gateway, which the server
// has escaped, into an inert document.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
document.documentElement.classList.add('scripted');

const policy = globalThis.trustedTypes?.createPolicy('console', { createHTML: (page) => page });
const parse = (page) => new DOMParser().parseFromString(policy ? policy.createHTML(page) : page, 'text/html');

// Updates: the parts of a page with an id are replaced by those of the same page, fetched again.

// Parts with the content of a form.
const KEPT = ['same', 'try', 'why', 'outcome'];
let paused = false;
let fetching = null;
let again = false;
// True while a form leads to another page: what it changes, such as a removed server, is not fetched again here.
let leaving = false;

function isBusy(part) {
  if ($('.u-over:hover', part)) return true;
  const focused = document.activeElement;
  const edits = focused && part.contains(focused) && focused.matches('input, textarea, select');
  return edits || $$('input, textarea, select', part).some((field) => field.dataset.changed);
}

function replace(part, fresh) {
  if (part.isEqualNode(fresh) || isBusy(part)) return;
  const open = $$('details[id]', part).filter((one) => one.open).map((one) => one.id);
  const known = new Set($$('tbody tr', part).map((row) => row.textContent));
  const focus = part.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
  const top = $$('.tall, pre', part).map((one) => one.scrollTop);
  const next = document.importNode(fresh, true);
  part.replaceWith(next);
  for (const id of open) document.getElementById(id)?.setAttribute('open', '');
  $$('.tall, pre', next).forEach((one, at) => { one.scrollTop = top[at] ?? 0; });
  if (known.size) for (const row of $$('tbody tr', next)) if (!known.has(row.textContent)) row.classList.add('fresh');
  if (focus) $$('a', next).find((link) => link.getAttribute('href') === focus)?.focus({ preventScroll: true });
  enhance(next);
}

async function refresh() {
  if (leaving) return;
  if (fetching) { again = true; return; }
  const here = location.pathname + location.search;
  try {
    fetching = fetch(here, { headers: { accept: 'text/html' }, credentials: 'same-origin' });
    const response = await fetching;
    if (response.redirected) { location.reload(); return; }
    if (response.ok) {
      const page = parse(await response.text());
      if (here !== location.pathname + location.search) return;
      const main = $('main');
      const counts = $('#waiting');
      for (const part of [...$$(':scope > [id], :scope > .stack > [id]', main), ...(counts ? [counts] : [])]) {
        if (KEPT.includes(part.id)) continue;
        const fresh = page.getElementById(part.id);
        if (fresh && part.isConnected) replace(part, fresh);
      }
      document.dispatchEvent(new Event('console:refreshed'));
    }
  } catch { /* The next event tries again. */ } finally {
    fetching = null;
    fetched = performance.now();
    if (again) { again = false; soon(); }
  }
}

// While more calls end than a list shows, single lines say little: it is fetched less often, so that many open consoles
// cost the gateway little.
const SOON = 50;
const BUSY = 2000;
const MANY_CALLS = 50;
let timer = 0;
let due = 0;
let fetched = -BUSY;
function soon(busy = false) {
  const now = performance.now();
  const at = Math.max(now + SOON, busy ? fetched + BUSY : 0);
  if (timer && due <= at) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(() => {
    timer = 0;
    if (!paused && !document.hidden) refresh(); else again = true;
  }, at - now);
}
document.addEventListener('visibilitychange', () => { if (!document.hidden && again && !paused) { again = false; soon(); } });

// One stream of events for all tabs: the tab that holds the lock reads it and tells the others.

const KINDS = ['open', 'reload', 'server', 'definition', 'tool', 'question', 'run', 'caller', 'policy', 'executions', 'log'];
const wanted = new Set((document.body.dataset.live ?? '').split(' ').filter(Boolean));
let first = true;
let ended = null;

function heard({ kind, data }) {
  if (kind === 'open' && first) { first = false; return; }
  if (kind === 'question') { questionCame(data); soon(); }
  if (kind === 'executions') {
    const many = ended !== null && data.ended - ended > MANY_CALLS;
    ended = data.ended ?? null;
    if (wanted.has(kind)) soon(many);
    return;
  }
  if (kind === 'open' || kind === 'reload' || wanted.has(kind)) soon();
}

function listen(tell) {
  return new Promise((ended) => {
    const source = new EventSource('/live');
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        let data = {};
        try { data = JSON.parse(event.data); } catch { /* An event without data. */ }
        tell({ kind, data });
      });
    }
    source.addEventListener('error', () => { if (source.readyState === EventSource.CLOSED) ended(); });
    addEventListener('pagehide', () => { source.close(); ended(); }, { once: true });
  });
}

async function follow() {
  if (!document.body.dataset.live) return;
  if (!navigator.locks || !globalThis.BroadcastChannel) {
    await listen(heard);
    return;
  }
  const channel = new BroadcastChannel('toolgate-console');
  channel.addEventListener('message', (event) => heard(event.data));
  await navigator.locks.request('toolgate-console-events', async () => {
    first = false;
    await listen((event) => { channel.postMessage(event); heard(event); });
  });
}

// Keys

const KEYS = [
  ['/', 'Search everything'], ['g then o s t e i r p c', 'Go to a part, by its first letter'],
  ['j and k', 'Next and previous row or question'], ['Enter', 'Open the row'],
  ['a and r', 'Approve or refuse the chosen call'], ['1 to 9', 'Choose an answer'], ['p', 'Pause the list'],
  ['?', 'This list'], ['Esc', 'Close'],
];
const PARTS = { o: '/', s: '/servers', t: '/tools', e: '/executions', i: '/inbox', r: '/runs', p: '/policy', c: '/callers' };

function node(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function help() {
  let dialog = $('#keys');
  if (!dialog) {
    const rows = KEYS.flatMap(([key, about]) => [node('dt', {}, node('kbd', {}, key)), node('dd', {}, about)]);
    const close = node('button', { type: 'button', className: 'primary' }, 'Close');
    dialog = node('dialog', { id: 'keys', ariaLabel: 'Keys' }, node('h2', {}, 'Keys'), node('dl', {}, ...rows), close);
    close.addEventListener('click', () => dialog.close());
    document.body.append(dialog);
  }
  dialog.showModal();
}

function chosenQuestion() {
  return $('.question.chosen') ?? ($$('[data-question]').length === 1 ? $('[data-question]') : null);
}

function move(by) {
  const questions = $$('[data-question]');
  if (questions.length) {
    const at = questions.findIndex((one) => one.classList.contains('chosen'));
    const next = questions[Math.min(Math.max(at + by, 0), questions.length - 1)];
    questions.forEach((one) => one.classList.toggle('chosen', one === next));
    next.scrollIntoView({ block: 'nearest' });
    return;
  }
  const links = $$('main tbody tr').map((row) => $('a', row)).filter(Boolean);
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

let going = false;
addEventListener('keydown', (event) => {
  const target = event.target;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches?.('input, textarea, select') || $('dialog[open]')) return;
  const { key } = event;
  if (going) {
    going = false;
    if (PARTS[key]) { event.preventDefault(); location.assign(PARTS[key]); }
    return;
  }
  const answer = chosenQuestion();
  const button = answer && $$('button[data-key]', answer).find((one) => one.dataset.key === key);
  if (button) { event.preventDefault(); button.click(); return; }
  const actions = {
    '/': () => $('#search')?.focus(), '?': help, g: () => { going = true; setTimeout(() => { going = false; }, 1500); },
    j: () => move(1), k: () => move(-1), p: () => $('[data-pause]')?.click(),
  };
  if (actions[key]) { event.preventDefault(); actions[key](); }
});

// Buttons that only exist with a script

function toggle(button) {
  paused = !paused;
  button.setAttribute('aria-pressed', String(paused));
  button.textContent = paused ? 'Resume' : 'Pause';
  if (!paused) soon();
}

async function copy(button) {
  const from = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(from.textContent);
    button.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(from);
    button.textContent = 'Selected: press Ctrl+C';
  }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest?.('button');
  if (button?.dataset.pause !== undefined) toggle(button);
  if (button?.dataset.copy) copy(button);
  if (button?.dataset.notify !== undefined) askToNotify(button);
  for (const menu of $$('details.menu[open], details.confirm[open]')) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  for (const menu of $$('details.menu[open], details.confirm[open]')) { menu.open = false; $('summary', menu)?.focus(); }
});
document.addEventListener('input', (event) => { event.target.dataset.changed = '1'; });

// A form is sent once: a second click must not call a tool again.
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.method !== 'post') return;
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = '1';
  form.setAttribute('aria-busy', 'true');
  leaving = form.dataset.liveForm === undefined && form.dataset.cancel === undefined;
  if (leaving) return;
  event.preventDefault();
  if (form.dataset.cancel !== undefined) cancel(form);
  else send(form, new FormData(form, event.submitter));
});
document.addEventListener('change', ({ target }) => {
  if (target.dataset.form === undefined || target.form.dataset.sent) return;
  const entered = new FormData(target.form);
  entered.set('do', 'form');
  target.form.dataset.sent = '1';
  send(target.form, entered);
});
addEventListener('pageshow', () => { leaving = false; });
addEventListener('pageshow', () => $$('form[data-sent]').forEach((form) => { delete form.dataset.sent; form.removeAttribute('aria-busy'); }));

// The form of a tool: sent without leaving the page, with the progress of the call.

async function send(form, entered) {
  const action = entered.get('do') ?? '';
  const accept = action === 'call' ? 'text/event-stream' : 'text/html';
  try {
    const response = await fetch(form.action, { method: 'POST', body: new URLSearchParams(entered), headers: { accept } });
    if (response.redirected) { location.assign(response.url); return; }
    if (response.headers.get('content-type')?.startsWith('text/event-stream')) await watch(response.body);
    else show(await response.text(), action);
  } catch {
    progress({ message: 'The connection was lost. The list of executions has the result, if there is one.' });
    delete form.dataset.sent;
    form.removeAttribute('aria-busy');
  }
}

function show(text, action = '') {
  const fresh = $('main', parse(text));
  if (!fresh) throw new Error('no page');
  const focused = document.activeElement?.id;
  $('main').replaceWith(document.importNode(fresh, true));
  enhance($('main'));
  const [, list] = /^remove:(.*)\/\d+$/.exec(action) ?? [];
  const next = $('#outcome') ?? $('#why') ?? document.getElementById(list === undefined ? focused : `add${list}`);
  if (next?.id === 'outcome' || next?.id === 'why') next.scrollIntoView({ block: 'nearest' });
  next?.focus({ preventScroll: true });
}

function progress(now) {
  const box = $('#progress');
  if (!box) return;
  box.hidden = false;
  if (now.message) $('[data-progress-text]', box).textContent = now.message;
  const bar = $('progress', box);
  if (typeof now.total === 'number' && now.total > 0) { bar.max = now.total; bar.value = now.progress; }
}

function log({ level, data }) {
  const list = $('#progress [data-progress-log]');
  if (!list) return;
  list.hidden = false;
  if (list.childNodes.length > 200) list.firstChild.remove();
  list.append(`${level ?? 'info'}: ${typeof data === 'string' ? data : JSON.stringify(data)}\n`);
  list.scrollTop = list.scrollHeight;
}

async function watch(body) {
  progress({});
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('no result');
    text += value;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const lines = text.slice(0, end).split('\n');
      text = text.slice(end + 2);
      const kind = lines.find((line) => line.startsWith('event: '))?.slice(7);
      const data = lines.filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
      if (kind === 'page') { show(data); return; }
      if (kind === 'started') running(JSON.parse(data).callId);
      if (kind === 'progress') progress(JSON.parse(data));
      if (kind === 'log') log(JSON.parse(data));
    }
  }
}

function running(call) {
  const form = $('#progress [data-cancel]');
  if (!form) return;
  form.elements.$path.value = call;
  $('button', form).disabled = false;
}

async function cancel(form) {
  progress({ message: 'The call is being cancelled.' });
  const body = new URLSearchParams(new FormData(form));
  await fetch(form.action, { method: 'POST', body, headers: { accept: 'application/json' } }).catch(() => {});
}

// A run: the text of the model as it is written. The page has everything else.

function followRun() {
  const box = $('[data-follow]');
  if (!box) return;
  const writing = $('[data-writing]', box);
  let said = 0;
  let over = false;
  let source = null;
  const write = (text) => { writing.textContent = text; box.hidden = !text.trim(); };
  const open = () => {
    write('');
    source = new EventSource(box.dataset.follow);
    source.addEventListener('text', (event) => write(writing.textContent + JSON.parse(event.data).text));
    source.addEventListener('again', () => write(''));
    source.addEventListener('said', () => { said = writing.textContent.length; soon(); });
    for (const kind of ['call', 'result']) source.addEventListener(kind, soon);
    // A run that was resumed has an earlier end, so only the end of the stream is the last one.
    for (const kind of ['begun', 'text', 'said', 'call']) source.addEventListener(kind, () => { over = false; });
    source.addEventListener('ended', () => { over = true; write(''); soon(); });
    source.addEventListener('error', () => { if (over) source.close(); });
  };
  document.addEventListener('console:refreshed', () => { write(writing.textContent.slice(said)); said = 0; });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) source?.close();
    else if (!over) open();
  });
  if (!document.hidden) open();
}

// Notifications, on request

async function askToNotify(button) {
  const answer = await Notification.requestPermission();
  button.hidden = answer !== 'default';
}

function questionCame(data) {
  if (data.state !== 'open' || globalThis.Notification?.permission !== 'granted' || !document.hidden) return;
  const asked = new Notification(`${data.caller} waits for you`, { body: data.tool, tag: data.id });
  asked.addEventListener('click', () => { focus(); location.assign('/inbox'); });
}

// The palette: what the search finds, while it is typed. Without scripts, Enter opens the page of the results.

function palette() {
  const input = $('#search');
  const list = $('#palette');
  if (!input || !list) return;
  let at = -1;
  let typed = 0;
  const options = () => $$('[role=option]', list);
  const close = () => { list.hidden = true; at = -1; input.setAttribute('aria-expanded', 'false'); input.removeAttribute('aria-activedescendant'); };
  const choose = (next) => {
    const all = options();
    if (!all.length) return;
    at = (next + all.length) % all.length;
    all.forEach((one, index) => one.setAttribute('aria-selected', String(index === at)));
    input.setAttribute('aria-activedescendant', all[at].id);
    all[at].scrollIntoView({ block: 'nearest' });
  };
  const find = async (words) => {
    const response = await fetch(`/search?q=${encodeURIComponent(words)}`, { headers: { accept: 'text/html' } });
    if (!response.ok || response.redirected || words !== input.value.trim()) return;
    const page = parse(await response.text());
    if (words !== input.value.trim() || document.activeElement !== input) return;
    const found = $$('main [data-group]', page).flatMap((group) => [
      node('p', { className: 'group', role: 'presentation' }, group.dataset.group),
      ...$$('a', group).map((link) => node('a', { href: link.getAttribute('href'), role: 'option', tabIndex: -1 },
        node('span', {}, link.textContent), node('span', { className: 'quiet' }, link.parentElement.querySelector('.quiet')?.textContent ?? ''))),
    ]);
    list.replaceChildren(...(found.length ? found : [node('p', { className: 'empty' }, 'Nothing was found.')]));
    options().forEach((one, index) => { one.id = `found${index}`; });
    list.hidden = false;
    at = -1;
    input.setAttribute('aria-expanded', 'true');
  };
  input.addEventListener('input', () => {
    clearTimeout(typed);
    const words = input.value.trim();
    if (!words) { close(); return; }
    typed = setTimeout(() => find(words).catch(() => {}), 120);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { if (list.hidden) input.blur(); close(); return; }
    if (list.hidden) return;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { event.preventDefault(); choose(event.key === 'ArrowDown' ? at + 1 : Math.max(at, 0) - 1); }
    if (event.key === 'Enter' && at >= 0) { event.preventDefault(); options()[at].click(); }
  });
  document.addEventListener('click', (event) => { if (!$('.search').contains(event.target)) close(); });
}

// Charts: drawn from the table beside them, which has the same numbers for everybody else.

const COUNT = (value) => (value === null || value === undefined ? '–' : String(value));
function took(micros) {
  if (micros === null || micros === undefined) return '–';
  if (micros < 1e3) return `${Math.round(micros)} µs`;
  return micros < 1e6 ? `${Number((micros / 1e3).toPrecision(3))} ms` : `${Number((micros / 1e6).toPrecision(3))} s`;
}

function colour(name) {
  const probe = document.body.appendChild(node('i', { hidden: true }));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function draw(figure) {
  const { since, until, step } = figure.dataset;
  const seconds = (time) => Math.round(Date.parse(time) / 1e3);
  const [start, end, every] = [seconds(since), seconds(until), Number(step)];
  if (!(end > start && every > 0)) return;
  const rows = new Map($$('tbody tr', figure).map((row) => [seconds(row.dataset.time), [...row.cells].slice(1).map((cell) => (cell.dataset.v ? Number(cell.dataset.v) : null))]));
  const times = [];
  for (let at = start; at < end && times.length < 2000; at += every) times.push(at);
  const column = (index, none) => times.map((time) => rows.get(time)?.[index] ?? none);
  const box = node('div', { className: 'plots', ariaHidden: 'true' });
  figure.prepend(box);
  const [text, grid, accent, bad, warn] = ['quiet', 'line', 'accent', 'bad', 'warn'].map(colour);
  const clock = (time) => new Date(time * 1e3).toISOString();
  const dates = (_, all, __, ___, apart) => all.map((time) => (apart < 86400 ? clock(time).slice(11, 16) : clock(time).slice(5, 10)));
  const axis = (format) => ({ stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: '11px system-ui, sans-serif', size: 58, ...(format ? { values: (_, all) => all.map(format) } : {}) });
  const bars = globalThis.uPlot.paths.bars({ size: [0.8, 40] });
  const bar = (label, color) => ({ label, stroke: color, fill: color, width: 0, paths: bars, points: { show: false }, value: (_, value) => COUNT(value) });
  const line = (label, color) => ({ label, stroke: color, width: 1.5, spanGaps: true, points: { size: 4 }, value: (_, value) => took(value) });
  const plots = [
    [[bar('Calls', accent), bar('Failed', bad)], (value) => (Number.isInteger(value) ? value : ''), [column(0, 0), column(1, 0)]],
    [[line('p50', accent), line('p95', warn), line('p99', bad)], took, [column(2, null), column(3, null), column(4, null)]],
  ].map(([series, format, data]) => {
    const place = box.appendChild(node('div'));
    return new globalThis.uPlot({
      width: Math.max(place.clientWidth, 200), height: 170, series: [{ label: 'UTC', value: '{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}' }, ...series],
      tzDate: (time) => globalThis.uPlot.tzDate(new Date(time * 1e3), 'Etc/UTC'),
      axes: [{ ...axis(), size: 30, values: dates }, axis(format)], scales: { x: { range: () => [start - every / 2, end - every / 2] }, y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
      cursor: { sync: { key: 'figures' }, drag: { x: false, y: false }, points: { size: 6 } },
    }, [times, ...data], place);
  });
  new ResizeObserver(() => {
    for (const plot of plots) {
      const width = plot.root.parentElement?.clientWidth ?? 0;
      if (width && width !== plot.width) plot.setSize({ width, height: 170 });
    }
  }).observe(box);
  figure.classList.add('drawn');
}

function enhance(root) {
  const notify = $('[data-notify]', root);
  if (notify && globalThis.Notification?.permission === 'default') notify.hidden = false;
  if (globalThis.uPlot) for (const figure of $$('figure[data-since]', root)) draw(figure);
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const figure of $$('figure.drawn')) { $('.plots', figure).remove(); draw(figure); }
});
palette();
enhance(document);
follow();
followRun();
