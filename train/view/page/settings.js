// The settings in which the chosen runs differ, or those of a single run.
'use strict';

const kRows = 22;             // shown at first, of several runs
const kRowsAlone = 12;
const kOwn = ['data-dir', 'time', 'command_line', 'RINGTAPE_DATA_DIR'];      // what differs anyway
const kResults = [['test', 'top1', 'test accuracy'], ['val', 'top1', 'validation accuracy'],
  ['knn', 'top1', 'kNN accuracy'], ['probe', 'top1', 'probe accuracy'], ['test', 'loss', 'test loss'],
  ['train', 'loss', 'training loss']];

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
  let all = false, wide = false, ids = [], names = [], shown = [], drawn = '';

  // config.toml, then the machine with its variables, where that does not have the same name.
  function settings(id) {
    const config = fields(record(id).detail?.config), { variables, ...machine } = fields(record(id).detail?.env);
    return { ...config, ...machine, ...fields(variables), ...config };
  }

  // A row for each result that any run has; the best one is marked.
  function resultRows() {
    return kResults.map(([split, field, title]) => {
      const values = ids.map(id => fields(fields(record(id).info?.results)[split])[field]), known = values.filter(isNumber);
      if (!known.length) return null;
      const best = field === 'top1' ? Math.max(...known) : Math.min(...known);
      const cells = values.map(v => el('td', { className: v === best && known.length > 1 ? 'top' : '' },
        field === 'top1' ? percent(v) : num(v, 4)));
      return el('tr', { className: 'result' }, el('th', { scope: 'row' }, title), ...cells);
    }).filter(Boolean);
  }

  panel.gather = () => {
    ids = choice.chosen.filter(id => Object.keys(settings(id)).length);
    names = [...new Set(ids.flatMap(id => Object.keys(settings(id))))];
    const values = ids.map(settings), texts = name => new Set(values.map(s => settingText(s[name])));
    shown = ids.length > 1 ? names.filter(name => !kOwn.includes(name) && texts(name).size > 1) : names;
    panel.size = ids.length > 4 || wide ? 'full' : 'half';
    return ids.length > 0;
  };

  panel.draw = () => {
    const about = id => [slotOf(id), nameOf(id), settings(id), record(id).info?.results];
    const now = JSON.stringify([ids.map(about), all, wide]);
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
    const table = el('table', { className: 'diff' }, el('thead', {}, head), el('tbody', {}, ...resultRows(), ...rows));
    const same = shown.length ? null : el('p', { className: 'empty' }, 'All settings are the same.');
    body.replaceChildren(...[table, same, more].filter(Boolean));
    if (!wide && body.clientWidth && body.scrollWidth > body.clientWidth) {      // it gets a row of its own
      wide = true;
      setTimeout(drawAll);
    }
  };
  function toggle() {
    all = !all;
    panel.draw();
  }
  return panel;
}
