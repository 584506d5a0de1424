// Asks for the runs every second, for new lines of the chosen ones, and draws what is new.
'use strict';

const kEvery = 1000;          // milliseconds from question to question
const kAtOnce = 700;          // milliseconds of taking over lines until what has come is drawn
const kRetry = 5000;          // until settings that could not be had are asked for again
const kFirst = 3;             // runs chosen at first if nobody says which

let source = null;
let begun = false;
let linked = false;           // the address names runs

// One question at a time, so that no line is taken twice.
let turn = Promise.resolve();
const poll = force => turn = turn.then(() => ask(force)).catch(error => { sayTrouble(error); return false; });

// Asks once. True if more lines are there than came.
async function ask(force) {
  const answer = await source.runs(), before = choice.chosen.join('\n');
  let news = setRuns(answer) || force;
  if (!begun) begin(answer);
  findChosen();
  if (choice.chosen.join('\n') !== before) news = true;
  const chosen = choice.chosen.map(record);
  for (const rec of chosen) if (await askDetail(rec)) news = true;
  const lines = await takeLines(chosen.filter(rec => !rec.complete));
  drawList();
  drawChips();
  drawNotices();
  if (news || lines.news) drawAll();
  sayLive();
  return lines.more;
}

// The runs that are chosen at the start.
function begin(answer) {
  begun = true;
  findChosen();
  if (linked && choice.chosen.length) return;
  const first = list(answer.first).length ? answer.first : store.runs.slice(0, kFirst).map(run => run.id);
  slots.fill(null);
  first.slice(0, kSlots).forEach((id, i) => { slots[i] = String(id); });
}

// Settings, log and trace of a run: once, and again when its state has changed.
async function askDetail(rec) {
  const { state, started, updated } = rec.info, now = [state, started, state === 'running' ? '' : updated].join();
  if (rec.asked === now || rec.retryAt > Date.now()) return false;
  try {
    rec.detail = fields(await source.run(rec.id));
  } catch (error) {
    if (!error.status) throw error;
    rec.retryAt = Date.now() + kRetry;              // the run may be about to vanish
    return false;
  }
  if (rec.started != null && rec.started !== started) forget(rec);
  Object.assign(rec, { asked: now, started, complete: false, retryAt: 0 });
  return true;
}

// New lines of these runs. Answers that were cut are asked for again at once, for a while.
async function takeLines(wanted) {
  const until = Date.now() + kAtOnce;
  let news = false;
  while (wanted.length && Date.now() < until) {
    const answers = await askMetrics(wanted), more = [];
    for (const rec of wanted) {
      const answer = answers[rec.id], from = rec.next;
      if (!answer) continue;
      if (addLines(rec, answer)) news = true;
      if (answer.more && rec.next !== from) more.push(rec);
      else rec.complete = rec.info.state !== 'running';
    }
    wanted = more;
  }
  return { news, more: wanted.length > 0 };
}

// If the server knows one of the runs no more, the others are asked for one by one.
async function askMetrics(wanted) {
  const ask = async runs => fields((await source.metrics(runs.map(rec => [rec.id, rec.next]))).metrics);
  try {
    return await ask(wanted);
  } catch (error) {
    if (!error.status) throw error;
  }
  const answers = {};
  for (const rec of wanted.length > 1 ? wanted : []) {
    try {
      Object.assign(answers, await ask([rec]));
    } catch (error) {
      if (!error.status) throw error;
    }
  }
  return answers;
}

// What the top of the page says about the connection.
function sayLive() {
  const running = store.runs.filter(run => run.state === 'running').length;
  const text = running ? `Live · ${running} running` : 'Nothing is running';
  say(source.live ? text : 'Report', source.live && running ? 'on' : '');
  setText($('root'), store.root ? '/ ' + store.root : '');
}
function sayTrouble(error) {
  if (!error.status && !error.noAnswer) console.error(error);
  say(error.status ? `ringtape answers ${error.status}` : 'No answer from ringtape', 'trouble');
}
function say(text, state) {
  $('live').className = state;
  setText($('live').lastElementChild, text);
}

async function askAgain() {
  const began = Date.now();
  const more = document.hidden ? false : await poll(false);
  setTimeout(askAgain, more ? 0 : Math.max(100, kEvery - (Date.now() - began)));
}

function start() {
  wireTools();
  try {
    source = openSource();
  } catch {
    say('The data of this report cannot be read.', 'trouble');
    return;
  }
  linked = readAddress();
  drawTools();
  const makers = [lossPanel, accuracyPanel, ratePanel, speedPanel, memoryPanel, spreadPanel, phasePanel, ranksPanel,
    settingsPanel, confusionPanel, samplesPanel, viewsPanel, filtersPanel, mapPanel, neighboursPanel];
  for (const make of makers) panels.push(make());
  $('panels').append(...panels.map(panel => panel.element));
  panels.push(comparisonPanel());
  $('panels').prepend(panels.at(-1).element);
  if (source.live) askAgain();
  else poll(true);
  addEventListener('hashchange', () => {
    readAddress();
    drawTools();
    poll(true);
  });
  document.addEventListener('visibilitychange', () => document.hidden || poll(false));
}
start();
