// Every rank as a small shape, grouped by node; shape and colour say its state. One path a state, so that thousands are
// drawn at once. Arrow keys and the pointer walk from rank to rank; the line below says what is known of it.
Rankscope.ranks = (() => {
  const { html, svg, seconds, whenever_wide } = Rankscope.dom;
  const circle = (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0`;
  const SHAPES = {
    culprit: (x, y, r) => `M${x},${y - r - 0.5}l${r + 0.5},${r + 0.5}l${-r - 0.5},${r + 0.5}l${-r - 0.5},${-r - 0.5}z`,
    running: (x, y, r) => `M${x - r},${y - r}l${2 * r},${r}l${-2 * r},${r}z`,
    suspected: (x, y, r) => `M${x},${y - r}l${r},${r}l${-r},${r}l${-r},${-r}z`,
    hung: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    waiting: circle,
    slow: (x, y, r) => `M${x - r},${y - r}h${2 * r}l${-r},${2 * r}z`,
    exited: (x, y, r) => `M${x - r},${y - r}l${2 * r},${2 * r}m${-2 * r},0l${2 * r},${-2 * r}`,
    unobserved: (x, y, r) => `M${x - r},${y}h${2 * r}`,
  };

  const size_for = (count) => (count <= 64 ? 26 : count <= 256 ? 18 : count <= 2048 ? 13 : 8);

  function kind(page, index) {
    const { role, roles, state, states } = page.ranks;
    return roles[role[index]] === "culprit" ? "culprit" : states[state[index]];
  }

  function by_node(page) {
    const nodes = page.ranks.nodes.map(() => []);
    page.ranks.node.forEach((node, index) => nodes[node].push(index));
    return nodes.map((members, node) => ({ node, members })).filter((one) => one.members.length);
  }

  // Where each rank lies: blocks of a node side by side, wrapped; with few nodes each has its name above it.
  function layout(page, width) {
    const count = page.ranks.rank.length;
    const size = size_for(count);
    const groups = by_node(page);
    const named = groups.length <= 128;
    const across = Math.max(1, Math.min(Math.max(...groups.map((one) => one.members.length)), 32, Math.floor((width - 8) / size)));
    const block = Math.max(across * size, named ? 84 : 0) + (named ? 14 : 6);
    const wide = Math.max(1, Math.floor(width / block));
    const at = Array(count);
    const names = [];
    let x = 0, y = 0, tallest = 0;
    groups.forEach((one, place) => {
      if (place && place % wide === 0) {
        y += tallest;
        x = 0;
        tallest = 0;
      }
      const top = y + (named ? 16 : 0);
      if (named) names.push([page.ranks.nodes[one.node] || "node not known", x, y + 11, block]);
      one.members.forEach((index, nth) => (at[index] = [x + (nth % across) * size + size / 2, top + Math.floor(nth / across) * size + size / 2]));
      tallest = Math.max(tallest, top - y + Math.ceil(one.members.length / across) * size + (named ? 8 : 4));
      x += block;
    });
    return { at, names, size, height: y + tallest, width };
  }

  function said(page, index) {
    const columns = page.ranks;
    const known = [
      `rank ${columns.rank[index]}`,
      columns.nodes[columns.node[index]],
      columns.pid[index] ? `pid ${columns.pid[index]}` : "",
      [columns.states[columns.state[index]], columns.roles[columns.role[index]]].filter(Boolean).join(", "),
      columns.step[index] === null ? "" : `step ${columns.step[index]}`,
      columns.idle[index] === null ? "" : `no step for ${seconds(columns.idle[index])}`,
      columns.positions[columns.position[index]] ? `in ${columns.positions[columns.position[index]]}` : "",
      columns.reason[index] < 0 ? "" : columns.reasons[columns.reason[index]],
    ];
    return known.filter(Boolean).join(" · ");
  }

  function legend(page) {
    const counts = {};
    page.ranks.rank.forEach((_, index) => (counts[kind(page, index)] = (counts[kind(page, index)] || 0) + 1));
    return html("ul", { class: "legend" }, ...Object.keys(SHAPES).filter((name) => counts[name]).map((name) =>
      html("li", {}, svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("path", { class: `shape ${name}`, d: SHAPES[name](7, 7, 4.5) })), `${counts[name]} ${name}`)));
  }

  function picture(page, placed) {
    const paths = {};
    const radius = placed.size * 0.31;
    placed.at.forEach(([x, y], index) => (paths[kind(page, index)] ||= []).push(SHAPES[kind(page, index)](+x.toFixed(1), +y.toFixed(1), +radius.toFixed(1))));
    const order = Object.keys(SHAPES).reverse();  // culprits last, above all others
    const letters = (room) => Math.floor((room - 14) / 6.8);
    return [
      ...placed.names.map(([name, x, y, room]) => svg("text", { x, y, class: "small" }, svg("title", {}, name), Rankscope.dom.cut(name, letters(room)))),
      ...order.filter((name) => paths[name]).map((name) => svg("path", { class: `shape ${name}`, d: paths[name].join("") })),
    ];
  }

  function nearest(placed, x, y) {
    let best = -1, least = placed.size * placed.size;
    placed.at.forEach(([cx, cy], index) => {
      const far = (cx - x) ** 2 + (cy - y) ** 2;
      if (far < least) [best, least] = [index, far];
    });
    return best;
  }

  // The rank that an arrow key leads to: the nearest in that direction.
  function beside(placed, index, key) {
    const [x, y] = placed.at[index];
    const ahead = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    let best = index, least = Infinity;
    placed.at.forEach(([cx, cy], other) => {
      const along = (cx - x) * ahead[0] + (cy - y) * ahead[1];
      const across = Math.abs((cx - x) * ahead[1]) + Math.abs((cy - y) * ahead[0]);
      if (along > 0.5 && along + 3 * across < least) [best, least] = [other, along + 3 * across];
    });
    return best;
  }

  const same_place = (one, other) =>
    one.rank.length === other.rank.length && one.rank.every((rank, index) => rank === other.rank[index])
    && one.node.every((node, index) => one.nodes[node] === other.nodes[other.node[index]]);

  // Returns a function that takes a newer document and shows it where this one is: cursor, focus and scrolling stay.
  // Enter or a click on a rank is told as the event "rank" with its number.
  function render(element, first) {
    let page = first;
    const count = page.ranks.rank.length;
    if (!count) {
      element.replaceChildren();
      return (next) => render(element, next);
    }
    const first_that_is = (name) => page.ranks.rank.findIndex((_, index) => kind(page, index) === name);
    const guilty = () => Math.max(0, ["culprit", "hung", "suspected", "slow"].map(first_that_is).find((index) => index >= 0) ?? 0);
    let at = guilty();
    let chosen = false;  // whether somebody walked; else the cursor is at the first that is odd
    let placed = null;
    let key = legend(page);
    const mark = svg("rect", { class: "cursor", rx: 2 });
    const output = html("p", { class: "read" });
    const aloud = html("span", { class: "aloud", role: "status" });  // what walking leads to, not what changes by itself
    const box = html("div", { class: "canvas", tabindex: 0, role: "application", "aria-label": `grid of ${count} ranks by node; arrow keys walk, the line below says what is known of a rank` });
    const wanted = html("input", { type: "number", min: 0, max: page.ranks.rank.reduce((most, rank) => Math.max(most, rank)), inputmode: "numeric" });
    element.replaceChildren(key, box, output, aloud, html("label", {}, "Show rank ", wanted));

    function show(index, far) {
      at = index;
      output.textContent = said(page, index);
      const [x, y] = placed.at[index];
      for (const [name, value] of Object.entries({ x: x - placed.size / 2, y: y - placed.size / 2, width: placed.size, height: placed.size })) mark.setAttribute(name, value);
      if (far) box.scrollTop = Math.max(0, y - box.clientHeight / 2);
    }

    function walk(index) {
      chosen = true;
      show(index, true);
      aloud.textContent = output.textContent;
    }

    function paint() {
      const { width, height } = placed;
      box.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...picture(page, placed), mark));
    }

    function under(event) {
      const corner = box.firstChild.getBoundingClientRect();
      return nearest(placed, event.clientX - corner.left, event.clientY - corner.top);
    }

    const pick = () => element.dispatchEvent(new CustomEvent("rank", { detail: page.ranks.rank[at] }));

    whenever_wide(box, (whole) => {
      placed = layout(page, whole - 18);
      paint();
      show(at, true);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") pick();
      else if (event.key.startsWith("Arrow")) walk(beside(placed, at, event.key));
      else return;
      event.preventDefault();
    });
    box.addEventListener("pointermove", (event) => {
      const index = under(event);
      if (index < 0) return;
      chosen = true;
      show(index, false);
    });
    box.addEventListener("click", (event) => {
      const index = under(event);
      if (index < 0) return;
      show(index, false);
      pick();
    });
    wanted.addEventListener("input", () => {
      const index = page.ranks.rank.indexOf(Number(wanted.value));
      if (wanted.value !== "" && index >= 0) walk(index);
    });

    return function update(next) {
      if (!same_place(page.ranks, next.ranks)) return render(element, next);
      page = next;
      const newer = legend(page);
      key.replaceWith(newer);
      key = newer;
      if (!placed) return update;
      paint();
      if (chosen || guilty() === at) show(at, false);
      else show(guilty(), true);
      return update;
    };
  }

  return { render };
})();
