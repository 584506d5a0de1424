// The settings in which the chosen runs differ, or those of a single run.
'use strict';

const kRows = 22;             // shown at first, of several runs
const kRowsAlone = 12;
const kOwn = ['data-dir', 'time', 'command_line'];      // what differs anyway

function settingText(v) {
  if (v === undefined || v === null) return '–';
  if (v === '') return 'none';
  if (typeof v === 'boolean') return v ? 'yes' : 'no';
  if (typeof v === 'number') return v && Math.abs(v) < 1e-4 ? v.toExponential() : String(v);
  return typeof v === 'string' ? v : JSON.stringify(v);
}

// The value that most of them have, if any two agree.
function commonest(values) {
  const count = new Map();
  for (const v of values) count.set(v, (count.get(v) || 0) + 1);
  const [value, times] = [...count].sort((a, b) => b[1] - a[1])[0];
  return times > 1 ? value : null;
}

function settingsPanel() {
  const body = el('div', { className: 'scroll', tabIndex: 0 });
  const panel = frame('Settings that differ', 'half', body);
  let all = false, ids = [], names = [], shown = [], drawn = '';

  // config.toml, then the machine, where that does not have the same name.
  function settings(id) {
    const config = fields(record(id).detail?.config);
    return { ...config, ...fields(record(id).detail?.env), ...config };
  }

  panel.gather = () => {
    ids = choice.chosen.filter(id => Object.keys(settings(id)).length);
    names = [...new Set(ids.flatMap(id => Object.keys(settings(id))))];
    const values = ids.map(settings), texts = name => new Set(values.map(s => settingText(s[name])));
    shown = ids.length > 1 ? names.filter(name => !kOwn.includes(name) && texts(name).size > 1) : names;
    panel.size = ids.length > 4 ? 'full' : 'half';
    return ids.length > 0;
  };

  panel.draw = () => {
    const now = JSON.stringify([ids.map(id => [slotOf(id), nameOf(id), settings(id)]), all]);
    if (now === drawn) return;                        // so that text can be selected while a run trains
    drawn = now;
    const alone = ids.length === 1, most = alone ? kRowsAlone : kRows;
    panel.head.textContent = alone ? 'Settings' : 'Settings that differ';
    panel.key.textContent = alone ? '' : `${names.length - shown.length} others are the same`;
    const values = ids.map(settings);
    const head = el('tr', {}, el('td'), ...ids.map(id => el('th', { scope: 'col' }, tag(id), nameOf(id))));
    const rows = shown.slice(0, all ? shown.length : most).map(name => {
      const texts = values.map(s => settingText(s[name])), common = commonest(texts);
      const cells = texts.map(text => el('td', { className: text === common ? 'same' : '' }, text));
      return el('tr', {}, el('th', { scope: 'row' }, name), ...cells);
    });
    const more = shown.length > most ? el('button', { className: 'button more', onclick: toggle },
      all ? 'Show fewer' : `Show all ${shown.length}`) : null;
    const table = el('table', { className: 'diff' }, el('thead', {}, head), el('tbody', {}, ...rows));
    const same = shown.length ? null : el('p', { className: 'empty' }, 'All settings are the same.');
    body.replaceChildren(...[shown.length ? table : same, more].filter(Boolean));
  };
  function toggle() {
    all = !all;
    panel.draw();
  }
  return panel;
}
