// The bar of tools, light and dark, and the keyboard.
'use strict';

const kBySmoothing = 0.1;

function drawTools() {
  for (const button of $('axis').children) button.setAttribute('aria-pressed', button.dataset.x === choice.x);
  $('smooth').value = choice.smooth;
  $('smooth-out').textContent = choice.smooth.toFixed(2);
  $('log').checked = choice.log;
  $('clip').checked = choice.clip;
  $('sort').value = choice.sort;
}

function set(change) {
  if ('x' in change && change.x !== choice.x) {
    choice.window = null;
    cursorX = null;
  }
  Object.assign(choice, change);
  writeAddress();
  drawTools();
  drawAll();
}
const smoother = by => set({ smooth: clamp(Number((choice.smooth + by).toFixed(2)), 0, 0.98) });

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawAll();
}
function otherTheme() {
  const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  remember('ringtapeTheme', theme);
  setTheme(theme);
}
function toggleHelp() {
  if ($('help').open) $('help').close();
  else $('help').showModal();
}
function showList(on) {
  document.body.classList.toggle('list', on);
  $('runs-button').setAttribute('aria-expanded', on);
}
function filterRuns() {
  showList(true);
  $('filter').focus();
}

const shortcuts = [
  ['j', 'next run', () => moveList(1)],
  ['k', 'previous run', () => moveList(-1)],
  ['x', 'choose the run or not', () => atRun && toggle(atRun)],
  ['/', 'filter the runs', filterRuns],
  ['1', 'by step', () => set({ x: 'step' })],
  ['2', 'by epoch', () => set({ x: 'epoch' })],
  ['3', 'by time', () => set({ x: 'time' })],
  ['4', 'by images', () => set({ x: 'images' })],
  ['l', 'log scale', () => set({ log: !choice.log })],
  ['c', 'cut extremes', () => set({ clip: !choice.clip })],
  ['[', 'less smoothing', () => smoother(-kBySmoothing)],
  [']', 'more smoothing', () => smoother(kBySmoothing)],
  ['r', 'show all again', () => set({ window: null })],
  [',', 'earlier snapshot', () => moveMoment(-1)],
  ['.', 'later snapshot', () => moveMoment(1)],
  ['t', 'light or dark', otherTheme],
  ['?', 'this list', toggleHelp],
];

function onKey(event) {
  if (event.key === 'Escape') {
    showList(false);
    document.activeElement?.blur();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.('input[type=search], select')) return;
  const shortcut = shortcuts.find(([key]) => key === event.key);
  if (!shortcut) return;
  event.preventDefault();
  shortcut[2]();
}

function wireTools() {
  for (const [x, axis] of Object.entries(axes)) {
    const button = el('button', { onclick: () => set({ x }) }, axis.name);
    button.dataset.x = x;
    $('axis').append(button);
  }
  $('smooth').oninput = () => set({ smooth: Number($('smooth').value) });
  $('log').onchange = () => set({ log: $('log').checked });
  $('clip').onchange = () => set({ clip: $('clip').checked });
  $('reset').onclick = () => set({ window: null });
  $('filter').oninput = drawList;
  for (const [value, sort] of Object.entries(sorts)) $('sort').append(el('option', { value }, sort.name));
  $('sort').onchange = () => sortRuns($('sort').value);
  $('theme').onclick = otherTheme;
  $('help-button').onclick = toggleHelp;
  document.querySelector('.skip').onclick = event => {      // the address is for choices
    event.preventDefault();
    $('main').focus();
  };
  $('runs-button').onclick = () => showList(!document.body.classList.contains('list'));
  for (const [key, say] of shortcuts) $('keys').append(el('dt', {}, el('kbd', {}, key)), el('dd', {}, say));
  addEventListener('keydown', onKey);

  const dark = matchMedia('(prefers-color-scheme: dark)');
  const ownTheme = () => setTheme(remembered('ringtapeTheme') || (dark.matches ? 'dark' : 'light'));
  dark.addEventListener('change', ownTheme);
  ownTheme();

  let timer;
  addEventListener('resize', () => {
    clearTimeout(timer);
    timer = setTimeout(() => panels.forEach(panel => panel.element.hidden || panel.resize?.()), 120);
  });
}
