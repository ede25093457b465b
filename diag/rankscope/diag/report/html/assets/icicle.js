// The prefix tree of the stacks, root on top: who has a frame, who lacks it. Click or Enter zooms, Escape zooms out,
// arrow keys walk. A frame is as wide as the logarithm of its ranks: one rank of thousands can be seen.
Rankscope.icicle = (() => {
  const { html, svg, set, ranks, cut, whenever_wide } = Rankscope.dom;
  const ROW = 22;
  const LETTER = 7.3;

  const weight = (count) => Math.log2(1 + Math.max(1, count));

  function children_of(tree) {
    const children = tree.map(() => []);
    tree.forEach((one, index) => one.parent >= 0 && children[one.parent].push(index));
    return children;
  }

  function name(page, index) {
    const one = page.tree[index];
    if (one.parent < 0) return "all observed ranks";
    return one.folded ? `${one.folded} further frames` : page.frames[one.frame];
  }

  // Where each visible frame lies when `top` has the whole width: [index, x, width, depth].
  function layout(page, children, top, width) {
    const placed = [];
    const above = [];
    for (let at = page.tree[top].parent; at >= 0; at = page.tree[at].parent) above.unshift(at);
    above.forEach((index, depth) => placed.push([index, 0, width, depth]));
    const todo = [[top, 0, width, above.length]];
    while (todo.length) {
      const [index, x, room, depth] = todo.pop();
      placed.push([index, x, room, depth]);
      const below = children[index];
      const within = below.reduce((sum, child) => sum + set(page, page.tree[child].have).count, 0);
      const here = set(page, page.tree[index].have).count - within;
      const total = below.reduce((sum, child) => sum + weight(set(page, page.tree[child].have).count), here > 0 ? weight(here) : 0);
      let left = x;
      for (const child of below) {
        const part = (room * weight(set(page, page.tree[child].have).count)) / total;
        if (part >= 0.5) todo.push([child, left, part, depth + 1]);
        left += part;
      }
    }
    return placed;
  }

  function look(page, index) {
    const one = page.tree[index];
    if (set(page, one.lack).count === 0) return "common";
    return one.is_culprit ? "guilty" : "part";
  }

  function read(page, index) {
    const one = page.tree[index];
    const lack = set(page, one.lack);
    return [
      html("div", {}, html("b", {}, html("code", {}, name(page, index)))),
      html("div", {}, `have it: ${ranks(set(page, one.have))}`),
      html("div", {}, lack.count ? `lack it: ${ranks(lack)}` : "every observed rank has it"),
    ];
  }

  function render(element, page) {
    if (!page.tree.length) return element.replaceChildren();
    const children = children_of(page.tree);
    const state = { top: 0, at: 0 };
    const box = html("div", { class: "canvas" });
    const output = html("div", { class: "read", "aria-live": "polite" }, ...read(page, 0));
    const out = html("button", { type: "button", hidden: true }, "Zoom out");
    const legend = html("ul", { class: "legend", "aria-label": "colours of the frames" },
      ...[["common", "all ranks have it"], ["part", "some ranks lack it"], ["guilty", "◆ a culprit has it, others lack it"]].map(([kind, text]) =>
        html("li", {}, svg("svg", { width: 14, height: 12, "aria-hidden": "true", class: `cell ${kind}` }, svg("rect", { width: 14, height: 12 })), text)));
    element.replaceChildren(
      html("p", { class: "hint" }, "Where the ranks part, root on top; width: logarithm of the number of ranks. Click or Enter zooms, Escape zooms out, arrow keys walk."),
      legend, box, output, out);
    let cells = new Map();

    function point(index, focus) {
      cells.get(state.at)?.setAttribute("tabindex", "-1");
      state.at = index;
      const cell = cells.get(index);
      cell?.setAttribute("tabindex", "0");
      if (focus) cell?.focus();
      output.replaceChildren(...read(page, index));
    }

    function zoom(index, focus) {
      state.top = index;
      state.at = index;
      out.hidden = index === 0;
      draw(box.clientWidth);
      point(index, focus);
    }

    function step(key) {
      const parent = page.tree[state.at].parent;
      const beside = parent < 0 ? [state.at] : children[parent];
      const place = beside.indexOf(state.at);
      const to = { ArrowUp: parent, ArrowDown: children[state.at][0], ArrowLeft: beside[place - 1], ArrowRight: beside[place + 1] }[key];
      if (to !== undefined && cells.has(to)) point(to, true);
    }

    function cell([index, x, width, depth]) {
      const kind = look(page, index);
      const room = Math.floor((width - 8) / LETTER);
      const label = cut(`${kind === "guilty" ? "◆ " : ""}${name(page, index)}`, room);
      const one = page.tree[index];
      const said = `${name(page, index)}; have it: ${ranks(set(page, one.have))}; lack it: ${ranks(set(page, one.lack))}`;
      const made = svg("rect", { x, y: depth * ROW, width: Math.max(0.5, width - 0.5), height: ROW - 1, role: "treeitem", "aria-level": depth + 1, tabindex: index === state.at ? 0 : -1, "aria-label": said });
      made.addEventListener("click", () => zoom(index === state.top ? Math.max(0, page.tree[index].parent) : index, true));
      made.addEventListener("mouseenter", () => output.replaceChildren(...read(page, index)));
      made.addEventListener("focus", () => point(index, false));
      cells.set(index, made);
      return svg("g", { class: `cell ${kind}` }, made, svg("text", { x: x + 4, y: depth * ROW + 15, "aria-hidden": "true" }, label));
    }

    function draw(whole) {
      const width = Math.max(200, whole - 18);
      cells = new Map();
      const placed = layout(page, children, state.top, width);
      const rows = 1 + Math.max(...placed.map((one) => one[3]));
      const picture = svg("svg", { width, height: rows * ROW, viewBox: `0 0 ${width} ${rows * ROW}`, role: "tree", "aria-label": "prefix tree of the stacks" }, ...placed.map(cell));
      box.replaceChildren(picture);
      // What all ranks have may be longer than the box is high: the first frame that some lack is to be seen.
      const part = state.top ? placed.find((one) => one[0] === state.top) : placed.filter((one) => look(page, one[0]) !== "common").sort((one, other) => one[3] - other[3])[0];
      box.scrollTop = part ? Math.max(0, (part[3] - 3) * ROW) : 0;
    }

    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") zoom(state.at, true);
      else if (event.key === "Escape") zoom(0, true);
      else if (event.key.startsWith("Arrow")) step(event.key);
      else return;
      event.preventDefault();
    });
    out.addEventListener("click", () => zoom(0, false));
    whenever_wide(box, draw);
  }

  return { render };
})();
