// The page of one node: what GET /v1/status, /v1/locks and /v1/events say, kept up to date by /v1/events/stream.
//
// Everything that comes from pawld becomes text nodes, never markup: names and owners are whatever clients made them. State is asked for every two seconds;
// the list, which costs Redis more, when an event says that something changed, and otherwise every five, always with a rest of ten times what it took.
'use strict';

const SAID_MS = 8000, STATUS_MS = 2000, LIST_MS = 5000, LIST_SOON_MS = 400, REST = 10, PAGE = 100, PAGES_MAX = 20, EVENTS_MAX = 60;
const element = (id) => document.getElementById(id);
const rows = new Map(); // name -> what is shown of a lock
const state = {prefix: '', sort: 'name', pages: 1, listAt: 0, listEarliest: 0, listing: false, lastEvent: 0, stream: null, breaking: null};

// ---- talking to pawld

class Refused extends Error {
  constructor(status, body) {
    super(body.message || 'status ' + status);
    this.status = status;
    this.code = body.error || '';
  }
}

function headers() {
  const token = sessionStorage.getItem('pawl-token');
  return token ? {Authorization: 'Bearer ' + token} : {};
}

async function ask(path, options = {}) {
  const reply = await fetch(path, {...options, headers: {...headers(), ...options.headers}, cache: 'no-store', signal: options.signal || AbortSignal.timeout(10000)});
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    if (reply.status === 401) {
      element('access').open = true;
    }
    throw new Refused(reply.status, body);
  }
  return body;
}

// ---- small pieces of text

function text(id, value) {
  const node = element(id);
  if (node.textContent !== String(value)) {
    node.textContent = value;
  }
}

let saidTimer = 0;
function say(sentence, isProblem) {
  text('said', sentence);
  element('said').className = isProblem ? 'said problem' : 'said';
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => text('said', ''), SAID_MS);
}

function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + ' s';
  if (s < 60) return Math.floor(s) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor((s % 86400) / 3600) + ' h';
}

const clock = (date) => date.toLocaleTimeString([], {hour12: false});

function make(tag, className, content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (content !== undefined) node.textContent = content;
  return node;
}

// ---- state

function health(kind, word, why) {
  element('health').className = 'health ' + kind;
  text('health-word', word);
  text('health-why', why);
  document.title = (kind === 'good' ? '' : word + ' \u2013 ') + 'pawl';
}

function showStatus(status) {
  const redis = status.redis;
  if (status.draining) health('warn', 'Draining', 'this node is shutting down; locks are taken elsewhere');
  else if (!redis.attached) health('bad', 'Redis is away', redis.problem || 'this node can\u2019t use it');
  else if (status.recovering) health('warn', 'Recovering', 'the data began a new life; leases are put back, and nothing is granted until that ends');
  else health('good', 'Healthy', 'locks are granted');
  text('node-name', status.node_name);
  text('redis', redis.attached ? 'attached' : 'away');
  element('redis').title = redis.address;
  text('recovery', status.recovering ? 'window open' : redis.attached ? 'none' : 'not known');
  text('leases', status.leases);
  text('waiters', status.waiters);
  text('connections', status.connections);
  text('uptime', duration(status.uptime_ms));
  text('version', 'pawld ' + status.version);
  text('node', 'node ' + status.node + ', Redis ' + (redis.role === 'unknown' ? '' : redis.role + ' ') + 'at ' + redis.address + ', fence ' + status.fence);
}

async function lookAtStatus() {
  try {
    showStatus(await ask('/v1/status'));
  } catch (problem) {
    if (problem instanceof Refused) health('warn', problem.status === 401 ? 'An access token is needed' : 'Refused', problem.message);
    else health('bad', 'No answer', 'this node can\u2019t be reached; what is shown below is old');
  }
}

// ---- locks

function newRow(name) {
  const tr = make('tr');
  const cell = (className, label) => {
    const td = make('td', className);
    td.setAttribute('role', 'cell');
    if (label) td.dataset.label = label;
    tr.append(td);
    return td;
  };
  tr.setAttribute('role', 'row');
  cell('name').textContent = name;
  const row = {tr, owner: cell('owner', 'Holder'), token: cell('token', 'Token')};
  const left = cell('left', 'Time left');
  row.left = make('span');
  row.bar = document.createElement('progress');
  row.bar.setAttribute('aria-hidden', 'true');
  left.append(row.left, row.bar);
  row.held = cell('held', 'Held for');
  row.waiting = cell('waiting', 'Waiting');
  row.button = make('button', '', 'Break\u2026');
  row.button.type = 'button';
  row.button.setAttribute('aria-label', 'Break ' + name);
  row.button.addEventListener('click', () => openBreak(name));
  cell('action').append(row.button);
  return row;
}

function takeLock(lock, now) {
  let row = rows.get(lock.name);
  if (!row) {
    row = newRow(lock.name);
    rows.set(lock.name, row);
  }
  if (row.lock === undefined || row.lock.token !== lock.token) row.most = 0;
  row.lock = lock;
  row.seen = now;
  row.most = Math.max(row.most, lock.ttl_ms);
  const owner = lock.owner === '' ? 'no name' : lock.owner;
  if (row.owner.textContent !== owner) row.owner.textContent = owner;
  row.owner.classList.toggle('quiet', lock.owner === '');
  if (row.token.textContent !== String(lock.token)) row.token.textContent = lock.token;
  if (row.waiting.textContent !== String(lock.waiters)) row.waiting.textContent = lock.waiters;
  row.tr.classList.toggle('crowd', lock.waiters >= 10);
}

function tickRow(row, now) {
  const passed = now - row.seen, left = Math.max(0, row.lock.ttl_ms - passed);
  row.left.textContent = left > 0 ? duration(left) : 'over';
  row.bar.max = row.most || 1;
  row.bar.value = left;
  row.held.textContent = duration(row.lock.held_ms + passed);
  row.tr.classList.toggle('over', left === 0);
  row.tr.classList.toggle('soon', left > 0 && left < row.most / 5);
}

const orders = {
  name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  waiters: (a, b) => b.waiters - a.waiters || orders.name(a, b),
  held: (a, b) => b.held_ms - a.held_ms || orders.name(a, b),
  left: (a, b) => a.ttl_ms - b.ttl_ms || orders.name(a, b),
};

// Moves only what is not in its place, so that focus stays where it is.
function arrange() {
  const body = element('rows');
  let at = body.firstElementChild;
  for (const row of [...rows.values()].sort((a, b) => orders[state.sort](a.lock, b.lock))) {
    if (row.tr === at) at = at.nextElementSibling;
    else body.insertBefore(row.tr, at);
  }
}

function showLocks(locks, more, recovering) {
  const now = performance.now(), there = new Set(locks.map((lock) => lock.name));
  for (const [name, row] of rows) {
    if (!there.has(name)) {
      row.tr.remove();
      rows.delete(name);
    }
  }
  for (const lock of locks) takeLock(lock, now);
  arrange();
  for (const row of rows.values()) tickRow(row, now);
  text('count', rows.size + (more ? '+' : ''));
  element('none').hidden = rows.size > 0;
  element('more').hidden = !more || state.pages >= PAGES_MAX;
  const stale = element('stale');
  stale.hidden = !recovering;
  if (recovering) stale.textContent = 'Recovering: locks may be missing here that are about to come back.';
  element('locks').classList.remove('stale');
}

async function readLocks() {
  const found = new Map();
  let cursor = '', recovering = false;
  for (let page = 0; page < PAGES_MAX && found.size < state.pages * PAGE; page++) {
    const query = new URLSearchParams({prefix: state.prefix, limit: PAGE});
    if (cursor) query.set('cursor', cursor);
    const part = await ask('/v1/locks?' + query.toString().replaceAll('+', '%20'));
    for (const lock of part.locks) found.set(lock.name, lock);
    recovering = recovering || part.recovering === true;
    cursor = part.cursor;
    if (cursor === '') break;
  }
  return {locks: [...found.values()], more: cursor !== '', recovering};
}

function locksFailed(problem) {
  const stale = element('stale');
  if (problem instanceof Refused && problem.status === 400) {
    say(problem.message, true);
    return;
  }
  if (rows.size > 0 || problem instanceof Refused) {
    stale.hidden = false;
    stale.textContent = (rows.size > 0 ? 'Not up to date: ' : 'The list can\u2019t be read: ') + problem.message;
    element('locks').classList.add('stale');
  }
}

async function lookAtLocks() {
  if (state.listing) return;
  state.listing = true;
  const begun = performance.now(), prefix = state.prefix;
  try {
    const found = await readLocks();
    if (prefix === state.prefix) showLocks(found.locks, found.more, found.recovering);
  } catch (problem) {
    locksFailed(problem);
  }
  state.listing = false;
  const now = performance.now();
  state.listEarliest = now + REST * (now - begun);
  state.listAt = prefix === state.prefix ? Math.max(state.listEarliest, now + LIST_MS) : now;
}

function lockChanged() {
  const now = performance.now();
  state.listAt = Math.min(state.listAt, Math.max(now + LIST_SOON_MS, state.listEarliest));
}

// ---- events

const kinds = {
  grant: ['granted', 'good'], release: ['released', ''], expire: ['ran out', 'warn'], break: ['broken', 'warn'], lost: ['lost', 'bad'],
  undone: ['taken back', 'warn'], recovered: ['put back', 'good'], detached: ['Redis away', 'bad'], attached: ['Redis attached', 'good'],
  window_closed: ['recovery over', 'good'], missed: ['some are missing here', 'warn'],
};

function eventDetails(event) {
  const parts = [];
  if (event.owner) parts.push(event.owner);
  if (event.token) parts.push('token ' + event.token);
  if (event.held_ms !== undefined) parts.push('held ' + duration(event.held_ms));
  if (event.waited_ms > 0) parts.push('waited ' + duration(event.waited_ms));
  if (event.reason) parts.push(event.name ? '\u201c' + event.reason + '\u201d' : event.reason);
  return parts.join(', ');
}

function addEvent(event) {
  const [word, tone] = kinds[event.event] || [event.event, ''];
  const item = make('li'), time = make('time', '', event.time ? clock(new Date(event.time)) : ''), first = make('span');
  if (event.time) time.dateTime = event.time;
  first.append(make('span', 'kind ' + tone, word), event.name || '');
  item.append(time, first, make('span', 'what', eventDetails(event)));
  const list = element('events');
  list.prepend(item);
  while (list.childElementCount > EVENTS_MAX) list.lastElementChild.remove();
  element('no-events').hidden = true;
  if (event.id) state.lastEvent = event.id;
}

function takeEvent(kind, data) {
  const event = JSON.parse(data);
  if (kind === 'end') return;
  addEvent(kind === 'missed' ? {event: 'missed', time: new Date().toISOString()} : event);
  lockChanged();
  if (!event.name) lookAtStatus();
}

// Server-sent events by fetch, since EventSource can't send an access token.
async function readStream(reply, signal) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done || signal.aborted) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = {};
      for (const line of block.split('\n')) {
        const colon = line.indexOf(':');
        if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
      }
      if (fields.event) takeEvent(fields.event, fields.data || '{}');
    }
  }
}

function eventQuery(more) {
  const query = new URLSearchParams(more);
  if (state.prefix) query.set('prefix', state.prefix);
  return query.toString().replaceAll('+', '%20');
}

async function pollEvents(signal) {
  const page = await ask('/v1/events?' + eventQuery(state.lastEvent ? {since: state.lastEvent, limit: EVENTS_MAX} : {limit: EVENTS_MAX}), {signal});
  if (page.missed) addEvent({event: 'missed', time: new Date().toISOString()});
  for (const event of page.events) addEvent(event);
  if (page.events.length > 0) lockChanged();
  state.lastEvent = page.last;
}

const rest = (ms, signal) => new Promise((go) => {
  const timer = setTimeout(go, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); go(); }, {once: true});
});

async function watch(signal) {
  for (let wait = 1000; !signal.aborted; wait = Math.min(2 * wait, 10000)) {
    try {
      await pollEvents(signal);
      const reply = await fetch('/v1/events/stream?' + eventQuery({since: state.lastEvent}), {headers: headers(), cache: 'no-store', signal});
      if (reply.ok) {
        text('live', 'as they happen');
        wait = 500;
        await readStream(reply, signal);
      } else {
        text('live', 'every few seconds');
        wait = 2000;
      }
    } catch (problem) {
      if (signal.aborted) return;
    }
    if (!signal.aborted) {
      if (element('live').textContent === 'as they happen') text('live', 'connecting again');
      await rest(wait, signal);
    }
  }
}

function beginWatching() {
  if (state.stream) state.stream.abort();
  state.stream = new AbortController();
  state.lastEvent = 0;
  element('events').replaceChildren();
  element('no-events').hidden = false;
  watch(state.stream.signal);
}

// ---- breaking

function openBreak(name) {
  const row = rows.get(name);
  if (!row) return;
  state.breaking = {name, token: row.lock.token, button: row.button};
  text('break-name', name);
  text('break-owner', row.lock.owner || 'somebody without a name');
  text('break-token', row.lock.token);
  text('break-problem', '');
  element('reason').value = '';
  element('break').showModal();
  element('reason').focus();
}

const lockPath = (name, verb) => '/v1/locks/' + name.split('/').map(encodeURIComponent).join('/') + (verb ? '/' + verb : '');

// What stands there may be another's by now: that one was not meant.
async function breakLock(wanted, reason) {
  const now = await ask(lockPath(wanted.name));
  if (!now.held) throw new Error('it is not held any more');
  if (now.token !== wanted.token) throw new Error('it is held by another lease now, with token ' + now.token + ': look again');
  await ask(lockPath(wanted.name, 'break'), {method: 'POST', body: JSON.stringify({reason})});
}

async function submitBreak(submitted) {
  submitted.preventDefault();
  const wanted = state.breaking, reason = element('reason').value.trim();
  if (reason === '') {
    text('break-problem', 'Say why: it is written to the log.');
    element('reason').focus();
    return;
  }
  try {
    await breakLock(wanted, reason);
    element('break').close();
    say(wanted.name + ' was broken.');
    lockChanged();
  } catch (problem) {
    text('break-problem', 'Not broken: ' + problem.message);
  }
}

// ---- the page's own

function takeToken(submitted) {
  submitted.preventDefault();
  const token = element('token').value.trim();
  element('token').value = '';
  if (token) sessionStorage.setItem('pawl-token', token);
  else sessionStorage.removeItem('pawl-token');
  say(token ? 'The token is used from now on.' : 'No token is used.');
  refreshAll();
}

function refreshAll() {
  lookAtStatus();
  state.listAt = 0;
  beginWatching();
}

let prefixTimer = 0;
function takePrefix() {
  clearTimeout(prefixTimer);
  prefixTimer = setTimeout(() => {
    state.prefix = element('prefix').value.trim();
    state.pages = 1;
    state.listEarliest = 0;
    refreshAll();
  }, 300);
}

function tick() {
  const now = performance.now();
  if (document.hidden) return;
  for (const row of rows.values()) tickRow(row, now);
  if (now >= state.listAt) lookAtLocks();
}

element('controls').addEventListener('submit', (submitted) => { submitted.preventDefault(); takePrefix(); });
element('prefix').addEventListener('input', takePrefix);
element('sort').addEventListener('change', () => { state.sort = element('sort').value; arrange(); });
element('more').addEventListener('click', () => { state.pages++; state.listAt = 0; });
element('token-form').addEventListener('submit', takeToken);
element('forget').addEventListener('click', (click) => { element('token').value = ''; takeToken(click); });
element('break-form').addEventListener('submit', submitBreak);
element('break-cancel').addEventListener('click', () => element('break').close());
document.addEventListener('visibilitychange', () => { if (!document.hidden) lookAtStatus(); });
setInterval(() => { if (!document.hidden) lookAtStatus(); }, STATUS_MS);
setInterval(tick, 250);
refreshAll();
