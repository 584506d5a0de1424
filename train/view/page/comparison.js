// The table of a comparison's report. A click on the head of a column sorts by it.
'use strict';

function comparisonPanel() {
  const body = el('div', { className: 'scroll', tabIndex: 0 }), notes = el('p', { className: 'say' });
  const panel = frame('Comparison', 'full', body, notes);
  let sorted = -1, down = false;

  const table = () => fields(source.comparison);
  panel.gather = () => list(table().rows).length > 0;
  panel.draw = () => {
    const rows = list(table().rows).map(row => list(row).map(String));
    if (sorted >= 0) rows.sort((a, b) => (down ? -1 : 1) * inOrder(a[sorted] ?? '', b[sorted] ?? ''));
    const heads = list(table().heads).map((head, i) => {
      const sort = el('button', { className: 'sort', onclick: () => sortBy(i) }, String(head));
      const order = sorted !== i ? 'none' : down ? 'descending' : 'ascending';
      return el('th', { scope: 'col', 'aria-sort': order }, sort);
    });
    const lines = rows.map(row => el('tr', {}, ...row.map(text => el('td', {}, text))));
    body.replaceChildren(el('table', { className: 'diff compared' }, el('thead', {}, el('tr', {}, ...heads)),
      el('tbody', {}, ...lines)));
    panel.head.textContent = 'Comparison: ' + String(table().title ?? '');
    notes.textContent = String(table().notes ?? '');
  };
  function sortBy(column) {
    down = sorted === column ? !down : false;
    sorted = column;
    panel.draw();
  }
  return panel;
}

// Numbers before texts; of "97.5 ± 0.2" only the mean counts.
function inOrder(a, b) {
  const x = parseFloat(a), y = parseFloat(b);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a.localeCompare(b);
  return x - y;
}
