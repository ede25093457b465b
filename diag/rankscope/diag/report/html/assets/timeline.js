// Cycles as bars of their stages, a line a node, and what happened above them. The list beside it says the same.
Rankscope.timeline = (() => {
  const { html, svg, cut, seconds, whenever_wide } = Rankscope.dom;
  const MOST_NODES = 12;
  const ROW = 22;
  const SIGNS = { incident: "◆", decision: "▣", restart: "↻", slow: "▽", end: "■", other: "·" };

  function span(time) {
    const begins = [...time.cycles.map((one) => one.began), ...time.moments.map((one) => one.at)].filter((at) => at > 0);
    const ends = [...time.cycles.map((one) => one.began + one.duration), ...time.moments.map((one) => one.at)];
    if (!begins.length) return null;
    const begin = Math.min(...begins);
    return [begin, Math.max(1, Math.max(...ends) - begin)];
  }

  // Nodes of an incident first: with hundreds of nodes these are the lines to see.
  function nodes_of(time) {
    const odd = new Set(time.cycles.filter((one) => one.incident).map((one) => one.node));
    const all = [...new Set(time.cycles.map((one) => one.node))];
    return [...all.filter((one) => odd.has(one)), ...all.filter((one) => !odd.has(one))].slice(0, MOST_NODES);
  }

  function bars(time, one, y, x) {
    let at = one.began;
    return one.stages.map((length, index) => {
      const left = x(at);
      at += length;
      const name = time.stages[index];
      if (!length) return null;
      return svg("rect", { class: `stage ${name}`, x: left, y, width: Math.max(0.5, x(at) - left), height: ROW - 6 },
        svg("title", {}, `${one.node}, cycle ${one.number}: ${name.replaceAll("_", " ")} ${seconds(length)}`));
    });
  }

  function render(element, page) {
    const time = page.timeline;
    const whole = time && span(time);
    if (!whole) return element.replaceChildren();
    const [begin, length] = whole;
    const nodes = nodes_of(time);
    const canvas = html("div", { class: "canvas" });
    const stages = ["training", "hang_unnoticed", "first_step"].map((name) =>
      html("li", {}, svg("svg", { width: 14, height: 12, "aria-hidden": "true" }, svg("rect", { class: `stage ${name}`, width: 14, height: 12 })), name.replaceAll("_", " ")));
    const rest = html("li", {}, svg("svg", { width: 14, height: 12, "aria-hidden": "true" }, svg("rect", { class: "stage", width: 14, height: 12 })), "rendezvous, start, evidence, decision, stopping");
    const signs = Object.entries(SIGNS).filter(([kind]) => kind !== "other" && time.moments.some((one) => one.kind === kind))
      .map(([kind, sign]) => html("li", {}, `${sign} ${kind}`));
    const more = new Set(time.cycles.map((one) => one.node)).size - nodes.length;
    element.replaceChildren(html("ul", { class: "legend" }, ...stages, rest, ...signs), canvas,
      more > 0 ? html("p", { class: "hint" }, `${more} further nodes are not drawn; the table of cycles has them.`) : "");
    whenever_wide(canvas, (wide) => {
      const width = wide - 18;
      const left = nodes.length > 1 ? Math.min(130, width / 3) : 8;
      const x = (at) => left + ((Math.min(Math.max(at, begin), begin + length) - begin) / length) * (width - left - 14);
      const height = 26 + Math.max(1, nodes.length) * ROW + 20;
      const ticks = [0, 0.25, 0.5, 0.75, 1].filter((_, nth) => width > 500 || nth % 2 === 0);
      canvas.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "cycles and events by time; the list below says the same" },
        ...ticks.map((part) => svg("line", { class: "axis", x1: x(begin + part * length), x2: x(begin + part * length), y1: 20, y2: height - 16 })),
        ...ticks.map((part) => svg("text", { class: "small", x: x(begin + part * length), y: height - 3, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, seconds(part * length))),
        ...(nodes.length > 1 ? nodes.map((node, nth) => svg("text", { class: "small", x: 0, y: 26 + nth * ROW + 12 }, cut(node, Math.floor(left / 7)))) : []),
        ...time.cycles.flatMap((one) => (nodes.includes(one.node) ? bars(time, one, 26 + nodes.indexOf(one.node) * ROW, x) : [])),
        ...time.moments.filter((one) => one.kind !== "other" && one.at > 0).map((one) => svg("text", { class: `event ${one.kind}`, x: x(one.at), y: 16, "text-anchor": "middle" }, svg("title", {}, `${one.type}: ${one.text}`), SIGNS[one.kind]))));
    });
  }

  return { render };
})();
