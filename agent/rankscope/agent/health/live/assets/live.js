// The live page: puts what comes over the line into the parts, and keeps what the person at it has opened, focused, chosen.
Rankscope.live = (() => {
  const { html } = Rankscope.dom;
  const at = (id) => document.getElementById(id);
  const part = (name) => document.querySelector(`[data-part="${name}"]`);
  const clock = (time) => `${time.slice(11, 19)} UTC`;

  const known = { live: null, ranks: null, analysis: null, asked_in: "", line: { line: "connecting", why: "", age: null } };
  const drawn = {};  // what each part was drawn from, as text: it is drawn again when that has changed
  let draw_grid = null;

  // Draws what has changed; open and closed stay as they are, and the focus stays in its place.
  function keep(name, elements, from, draw) {
    const text = JSON.stringify(from);
    if (drawn[name] === text) return;
    drawn[name] = text;
    const things = () => elements.flatMap((one) => [...one.querySelectorAll("details")]);
    const places = () => elements.flatMap((one) => [...one.querySelectorAll("summary, a, button, input, [tabindex]")]);
    const open = things().map((one) => one.open);
    const focused = places().indexOf(document.activeElement);
    draw();
    const after = things();
    if (after.length === open.length) after.forEach((one, index) => (one.open = open[index]));
    if (focused >= 0 && document.activeElement === document.body) places()[focused]?.focus({ preventScroll: true });
  }

  const holds = () => (known.live?.is_current ? known.live.report : null);
  const report = () => known.analysis || known.live?.report || null;

  function without_time(one) {
    return one && { ...one, made: "" };
  }

  function draw_now() {
    const { live, ranks, analysis } = known;
    const said = Rankscope.now.headline(live, ranks, analysis);
    const from = [said.report ? [without_time(said.report), live?.stands.word] : said, live?.job, ranks?.world_size, Boolean(analysis)];
    keep("now", [at("verdict")], from, () => Rankscope.now.render(at("verdict"), live, ranks, analysis));
    Rankscope.now.figures(at("now"), live, ranks);
    const short = said.report ? `${said.report.head.verdict}${said.report.head.culprits.count ? ` ${Rankscope.dom.ranks(said.report.head.culprits)}` : ""}` : said.title;
    const stale = known.line.line === "live" || known.line.line === "connecting" ? "" : "OLD: ";
    document.title = `${stale}${short} – ${live?.job || ranks?.job || "Rankscope"}`;
  }

  function draw_ranks() {
    draw_grid ||= Rankscope.grid.make(part("ranks"), part("standing"), at("ranks-hint"));
    if (known.ranks) draw_grid(known.ranks, known.analysis || holds());
  }

  // The heading over the stacks: whose they are.
  function draw_found() {
    const { live, analysis } = known;
    const past = !analysis && live?.report && !live.is_current ? live.report : null;
    at("found").hidden = !live || (!analysis && live.is_current);
    at("found-title").textContent = analysis ? "A look you asked for" : past ? "The last incident" : "What was found";
    const back = html("button", { type: "button" }, live?.report ? "Show the incident instead" : "Put it away");
    back.addEventListener("click", () => {
      known.analysis = null;
      draw();
      at("analyse").focus();
    });
    at("found-hint").replaceChildren(...(analysis ? [`Taken at ${clock(analysis.head.time)}; nothing was done to the job. `, back]
      : past ? [`It holds no more: the job went on after it. Below are its stacks, as of ${clock(past.head.time)}.`]
        : ["No incident so far. “Analyse now” looks at the stacks of all ranks, without stopping them."]));
    at("last").hidden = !past;
    if (past) Rankscope.verdict.render(at("last"), past, "h3");
  }

  function draw_report() {
    const page = report();
    at("waits").hidden = !page?.waits.length;
    for (const name of ["stacks", "unseen", "evidence"]) at(name).hidden = !page;
    if (!page) return;
    Rankscope.waits.render(part("waits"), page);
    Rankscope.tables.waits(part("waits-table"), page);
    Rankscope.icicle.render(part("icicle"), page);
    Rankscope.stacks.render(part("stacks"), page);
    Rankscope.stacks.rest(part("other-stacks"), page);
    if (!page.stacks.groups.length) part("stacks").replaceChildren(html("p", {}, "No stack could be had."));
    part("filter").replaceChildren();
    if (page.stacks.groups.length > 1) Rankscope.stacks.filter(part("filter"), page, part("stacks"));
    Rankscope.tables.unseen(part("unseen"), page);
    Rankscope.tables.evidence(part("evidence"), page);
  }

  function draw_timeline() {
    const time = known.live?.timeline;
    at("timeline").hidden = !time;
    if (!time) return;
    const { seconds } = Rankscope.dom;
    const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
    at("timeline-said").textContent = `${time.state || "its end is not known"}, ${seconds(time.wall)}, of these ${seconds(time.lost)} not training; ${plural(time.restarts, "restart")}, ${plural(time.node_count, "node")}. Newest first.`;
    at("command").textContent = time.command;
    Rankscope.timeline.render(part("timeline"), { timeline: time });
    Rankscope.tables.moments(part("moments"), { timeline: { ...time, moments: [...time.moments].reverse() } });
    Rankscope.tables.cycles(part("cycles"), { timeline: time });
    at("warnings").replaceChildren(...time.warnings.map((text) => html("p", { class: "hint" }, text)));
  }

  function draw_line() {
    const { line, why, age } = known.line;
    const said = {
      connecting: "… connecting", live: "● live", refused: "✖ This visit is over: open the page again with the job's token",
      gone: `■ The agent has gone${why ? `: ${why}` : ""}`,
      old: why === "silent" ? "◌ OLD: no word from the agent" : "◌ OLD: connection lost, trying again",
    }[line];
    const element = at("line");
    if (element.textContent !== said) element.textContent = said;  // it is read aloud
    at("connection").className = `connection ${line}`;
    document.body.classList.toggle("stale", line === "old" || line === "gone" || line === "refused");
    const as_of = known.ranks?.time ? clock(known.ranks.time) : "";
    at("stamp").textContent = line === "live" || age === null ? as_of : `What is shown is ${Rankscope.dom.seconds(age)} old${as_of ? `, of ${as_of}` : ""}.`;
  }

  function draw_links() {
    for (const link of document.querySelectorAll("nav a")) link.hidden = at(link.hash.slice(1)).hidden;
  }

  function draw() {
    draw_now();
    draw_ranks();
    const page = report();
    const found = ["found", "last", "waits", "stacks", "unseen", "evidence"].map(at);
    keep("found", found.slice(0, 2), [without_time(page), known.live?.is_current, Boolean(known.analysis), Boolean(known.live)], draw_found);
    keep("report", found.slice(2), without_time(page), draw_report);
    keep("timeline", [at("timeline")], known.live?.timeline ?? null, draw_timeline);
    draw_line();
    draw_links();
  }

  // A rank was chosen in the grid: its stack, opened.
  function show_stack(rank) {
    if (!report()?.stacks.groups.length) return;
    const field = part("filter").querySelector("input[type=number]");
    if (field) {
      field.value = rank;
      field.dispatchEvent(new Event("input"));
    }
    const stack = [...part("stacks").children].find((one) => !one.hidden);
    if (!stack) return at("stacks").scrollIntoView();
    stack.open = true;
    stack.querySelector("summary").focus();
    stack.scrollIntoView({ block: "center" });
  }

  function take_page(live, trouble) {
    at("trouble").hidden = !trouble;
    at("trouble").textContent = trouble;
    if (!live) return;
    known.live = live;
    if (known.analysis && known.asked_in !== which(live)) known.analysis = null;  // something newer happened
    draw();
  }

  const which = (live) => JSON.stringify([live?.is_current && live.report?.head.incident, live?.stands.restarts]);

  function start() {
    const line = Rankscope.connection.follow({
      page: take_page,
      ranks: (answer) => {
        known.ranks = answer;
        draw_now();
        draw_ranks();
        draw_line();
      },
      state: (state) => {
        known.line = state;
        draw_line();
        draw_now();
      },
    });
    Rankscope.analyse.attach(at("analyse"), at("analysis-said"), {
      problem: line.problem,
      found: (page) => {
        known.analysis = page;
        known.asked_in = which(known.live);
        draw();
      },
    });
    part("ranks").addEventListener("rank", (event) => show_stack(event.detail));
  }

  return { start };
})();
Rankscope.live.start();
