// The wait-for graph: a box for ranks that are equal, an arrow to those they wait for. Those that wait for nobody, the
// sinks, stand on the right. The table beside it says the same in words.
Rankscope.waits = (() => {
  const { html, svg, set, ranks, cut, whenever_wide } = Rankscope.dom;
  const HEIGHT = 50;
  const GAP = 22;
  const MARKS = { culprit: "◆", victim: "○", bystander: "·" };

  // Steps to a sink; where all wait in a circle, to the first box.
  function distances(waits) {
    const far = waits.map((one) => (one.waits_for.some((to) => waits[to] !== one) ? -1 : 0));
    if (!far.includes(0)) far[0] = 0;
    for (let changed = true, step = 0; changed; step += 1) {
      changed = false;
      waits.forEach((one, index) => {
        if (far[index] < 0 && one.waits_for.some((to) => far[to] === step)) {
          far[index] = step + 1;
          changed = true;
        }
      });
    }
    return far.map((one) => Math.max(0, one));
  }

  function place(waits, width) {
    const far = distances(waits);
    const columns = 1 + Math.max(...far);
    const room = Math.max(128, Math.min(280, (width - (columns - 1) * 46 - 4) / columns));
    const used = Array(columns).fill(0);
    const places = waits.map((_, index) => {
      const column = columns - 1 - far[index];
      const y = 4 + used[column] * (HEIGHT + GAP);
      used[column] += 1;
      return { x: 2 + column * (room + 46), y };
    });
    const height = Math.max(...used) * (HEIGHT + GAP) - GAP + 8;
    // Short columns stand in the middle of the tall ones.
    places.forEach((one, index) => (one.y += (height - 8 + GAP - used[columns - 1 - far[index]] * (HEIGHT + GAP)) / 2));
    return { places, room, width: columns * room + (columns - 1) * 46 + 40, height };
  }

  function edge(from, to, room) {
    const y1 = from.y + HEIGHT / 2;
    const y2 = to.y + HEIGHT / 2;
    const ahead = to.x > from.x;
    const x1 = from.x + room;
    const x2 = ahead ? to.x - 7 : to.x + room + 7;
    const bend = ahead ? (x1 + x2) / 2 : Math.max(x1, x2) + 24;
    const tip = ahead ? `M${x2 + 6},${y2} l-8,-4 v8 z` : `M${x2 - 6},${y2} l8,-4 v8 z`;
    return [svg("path", { class: "edge", d: `M${x1},${y1} C${bend},${y1} ${bend},${y2} ${x2},${y2}` }), svg("path", { class: "tip", d: tip })];
  }

  function box(page, one, at, room) {
    const letters = Math.floor((room - 14) / 7.3);
    const many = one.node_count > 1 ? ` on ${one.node_count} nodes` : "";
    return svg("g", { class: `box role-${one.role}` },
      svg("title", {}, `${ranks(set(page, one.ranks))}${many}: ${one.role}, ${one.state}${one.position ? ` in ${one.position}` : ""}`),
      svg("rect", { x: at.x, y: at.y, width: room, height: HEIGHT, rx: 4 }),
      svg("text", { x: at.x + 8, y: at.y + 20 }, cut(`${MARKS[one.role]} ${ranks(set(page, one.ranks))}`, letters)),
      svg("text", { x: at.x + 8, y: at.y + 38, class: "small" }, cut(one.position || one.state, letters + 1)));
  }

  function render(element, page) {
    const waits = page.waits;
    if (!waits.length) return element.replaceChildren();
    const canvas = html("div", { class: "canvas" });
    element.replaceChildren(canvas);
    whenever_wide(canvas, (whole) => {
      const { places, room, width, height } = place(waits, whole - 60);
      const edges = waits.flatMap((one, index) => one.waits_for.filter((to) => to !== index).flatMap((to) => edge(places[index], places[to], room)));
      canvas.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "who waits for whom; the table below says the same" },
        ...edges, ...waits.map((one, index) => box(page, one, places[index], room))));
    });
  }

  return { render };
})();
