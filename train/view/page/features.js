// What a network without labels sees and learns: random views of images, nearest neighbours, and filters.
'use strict';

function viewsPanel() {
  return snapshotPanel({
    title: 'Random views',
    has: snapshot => viewsOf(snapshot).length,
    draw: snapshot => {
      const groups = viewsOf(snapshot).map(({ image, views }) => el('figure', { className: 'chain' },
        picture(snapshot, image, 'image'),
        el('span', { className: 'arrow', 'aria-hidden': 'true' }, '→'),
        ...views.map(view => picture(snapshot, view, 'view'))));
      const say = 'An image, then random views of it as the network gets them. It learns which views belong together.';
      return [el('div', { className: 'chains' }, ...groups), el('p', { className: 'say' }, say)];
    },
  });
}

const viewsOf = snapshot => list(snapshot.views).filter(group => list(group?.views).length);

function neighboursPanel() {
  return snapshotPanel({
    title: 'Nearest neighbours',
    has: snapshot => queriesOf(snapshot).length,
    draw: snapshot => {
      const queries = queriesOf(snapshot);
      const right = queries.flatMap(query => query.nearest.map(n => n?.label === query.label));
      const share = percent(right.filter(Boolean).length / right.length, 0);
      const say = `An image, then those with the nearest features. Framed: of another class. ${share} are of the same.`;
      return [el('div', { className: 'queries' }, ...queries.map(query => neighbourRow(snapshot, query))),
        el('p', { className: 'say' }, say)];
    },
  });
}
const queriesOf = snapshot => list(snapshot.neighbours).filter(query => list(query?.nearest).length);
function neighbourRow(snapshot, { image, label, nearest }) {
  const is = className(snapshot, label);
  const query = el('figure', {}, picture(snapshot, image, is), el('b', {}, is));
  const neighbours = nearest.map(fields).map(n => {
    const name = className(snapshot, n.label), wrong = n.label !== label;
    const text = `${name}${wrong ? ', another class' : ''}, similarity ${num(n.similarity)}`;
    return el('figure', { className: wrong ? 'wrong' : '', title: text },
      picture(snapshot, n.image, text), isNumber(n.similarity) ? n.similarity.toFixed(3) : '–');
  });
  return el('div', { className: 'query' }, query, el('div', { className: 'nearest' }, ...neighbours));
}

function filtersPanel() {
  return snapshotPanel({
    title: 'First-layer filters',
    has: snapshot => filtersOf(snapshot).length,
    draw: snapshot => {
      const filters = filtersOf(snapshot), one = fields(list(snapshot.images)[filters[0]]);
      const size = isNumber(one.width) ? `, ${one.width} × ${one.height} pixels` : '';
      const say = `${count(filters.length, 'filter')}${size}, each in its own range from black to white.`;
      return [el('div', { className: 'filters' }, ...filters.map((f, i) => picture(snapshot, f, `filter ${i + 1}`))),
        el('p', { className: 'say' }, say)];
    },
  });
}
const filtersOf = snapshot => list(snapshot.filters).filter(index => fields(list(snapshot.images)[index]).pixels);
