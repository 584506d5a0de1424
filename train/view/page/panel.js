// The frame of a panel, the letters of runs, and the order of panels on the page.
'use strict';

// Each panel is { element, size, gather(), draw(), and if needed cursor(x), resize(), snapshot }. gather() looks for
// what there is to show and says whether there is any; draw() shows it, and is called for visible panels only.
const panels = [];
let drawing = false;

function frame(title, size, ...body) {
  const key = el('span', { className: 'key' }), head = el('h2', {}, title);
  const header = el('header', {}, head, key);
  const element = el('section', { className: 'panel ' + size, 'aria-label': title }, header, ...body);
  return { element, key, head, size };
}

// The letter of a run in its colour; an empty box for a run that is not chosen.
function tag(id) {
  if (slotOf(id) < 0) return el('span', { className: 'tag off' });
  return el('span', { className: 'tag', style: `--c:var(--r${slotOf(id)})` }, letter(id));
}

// Buttons with letters, to choose one of several runs. They are made anew only when the runs are others.
function picker(key, label, pick) {
  const group = el('span', { className: 'pick', role: 'group', 'aria-label': label });
  let made = '';
  key.append(group);
  return (ids, id) => {
    const now = ids.map(i => slotOf(i) + nameOf(i)).join('\n');
    if (now !== made) {
      group.replaceChildren(...ids.map(i => {
        const name = nameOf(i);
        const button = el('button', { title: name, 'aria-label': name, onclick: () => pick(button.run) }, tag(i));
        button.run = i;
        return button;
      }));
      made = now;
    }
    for (const button of group.children) button.setAttribute('aria-pressed', button.run === id);
    group.hidden = ids.length < 2;
  };
}

// Draws panels again. Those without anything to show are hidden, unless that would be all of them.
function drawPanels(some = panels) {
  if (!panels.length) return;
  for (const panel of some) panel.filled = panel.gather();
  const nothing = !panels.some(panel => panel.filled);
  panels.forEach((panel, i) => { panel.element.hidden = !panel.filled && !(nothing && i < 2); });
  arrange();
  drawing = true;
  for (const panel of some) if (!panel.element.hidden) panel.draw();
  drawing = false;
}

// Small panels share a row, up to four of them; a panel of half a row without a neighbour gets the whole row.
function arrange() {
  const shown = panels.filter(panel => !panel.element.hidden);
  for (let i = 0; i < shown.length;) {
    let end = i + 1;
    while (end < shown.length && shown[end].size === shown[i].size) end++;
    const row = shown.slice(i, end), many = row.length;
    row.forEach((panel, k) => {
      let span = 12;
      if (panel.size === 'half' && (k < many - 1 || many % 2 === 0)) span = 6;
      if (panel.size === 'small') span = many > 1 ? 12 / Math.min(many, 4) : 6;
      panel.element.dataset.span = span;
    });
    i = end;
  }
}

// The place under the pointer, on the x axis of all charts.
let cursorX = null;
function setCursor(x) {
  cursorX = x;
  $('at').textContent = x == null ? '' : 'At ' + axes[choice.x].say(x);
  for (const panel of panels) if (!panel.element.hidden) panel.cursor?.(x);
}

function drawAll() {
  drawPanels();
  $('reset').hidden = !choice.window;
  setCursor(cursorX);
}

// Dims the curves of all other runs.
function focusRun(id) {
  if (choice.focus === id) return;
  choice.focus = id;
  drawPanels(panels.filter(panel => panel.curves));
}
