"use strict";
// The parts of a report. Each is `Rankscope.<part>.render(element, page)`: it draws the document `page`
// (docs/reference/report-document.md) into an element, replacing what was there. Text goes through textContent only.
const Rankscope = {};

Rankscope.dom = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function add(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children) {
      if (child !== null && child !== undefined) element.append(child);  // a string becomes a text node
    }
    return element;
  }

  const html = (tag, attributes, ...children) => add(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => add(document.createElementNS(SVG, tag), attributes, children);

  function set(page, index) {
    return page.sets[index];
  }

  function ranks(one) {
    if (!one.count && !one.ranks) return "no rank";
    const rest = one.is_cut ? `, … (${one.count} in all)` : "";
    return `rank${one.count === 1 ? "" : "s"} ${one.ranks}${rest}`;
  }

  // Whether a folded set (0-3,6) has a rank; a set that is cut may have any behind its end.
  function has(one, rank) {
    const runs = one.ranks.split(",").map((part) => part.split("-").map(Number));
    const end = runs[runs.length - 1];
    if (one.is_cut && rank > end[end.length - 1]) return true;
    return runs.some(([first, last = first]) => first <= rank && rank <= last);
  }

  const cut = (text, characters) =>
    text.length <= characters ? text : characters < 3 ? "" : `${text.slice(0, characters - 1)}…`;

  function seconds(value) {
    if (value < 60) return `${value.toFixed(1)} s`;
    const whole = Math.round(value);
    if (value < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  }

  // Draws now, and again whenever the element's width changes.
  function whenever_wide(element, draw) {
    let width = 0;
    const look = () => {
      const now = element.clientWidth;
      if (now > 40 && now !== width) draw((width = now));  // a window that is being opened has no width yet
    };
    look();
    if (typeof ResizeObserver !== "undefined") new ResizeObserver(look).observe(element);
  }

  return { html, svg, set, ranks, has, cut, seconds, whenever_wide };
})();
