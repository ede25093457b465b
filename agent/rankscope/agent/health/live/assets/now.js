// What holds now, in the first panel and in the line of figures below it: the verdict of an incident that holds, else a
// suspicion, an end, a phase, or that all is well. It takes `live` (docs/reference/report-document.md) and `ranks` (/v1/ranks).
Rankscope.now = (() => {
  const { html, seconds } = Rankscope.dom;
  const PHASES = {
    starting: ["Starting", "The agent starts; its workers do not run yet."],
    rendezvous: ["Rendezvous", "The agents wait for each other; workers start when all are there."],
    restarting: ["Restarting", "The workers are started again."],
    stopping: ["Stopping", "The workers are being stopped."],
    exit_barrier: ["Finishing", "Workers of this node are done; the agent waits for those of the others."],
    ended: ["Ended", "The workers have ended."],
  };
  const SIGNS = { error: "✖", warning: "▲", info: "●", none: "✔" };

  const has_stepped = (one) => one.step !== null && one.step !== undefined;  // a script without an optimizer makes none

  // Least and greatest of what is known: numbers of the answer, chosen, not added up.
  function span(values, write) {
    const known = values.filter((one) => one !== null && one !== undefined);
    if (!known.length) return null;
    const least = known.reduce((one, other) => Math.min(one, other));
    const most = known.reduce((one, other) => Math.max(one, other));
    return write(least) === write(most) ? write(least) : `${write(least)} – ${write(most)}`;
  }

  const list = (ranks) => (ranks && ranks.length ? `${ranks.length === 1 ? "rank" : "ranks"} ${ranks.slice(0, 20).join(", ")}${ranks.length > 20 ? ", …" : ""}` : "");

  // What the first panel says: the verdict of `report`, or { severity, title, summary }.
  function headline(live, ranks, shown) {
    if (shown) return { report: shown };
    if (live?.report && live.is_current) return { report: live.report };
    if (live?.is_over || ranks?.phase === "ended") {
      const word = live?.stands.word || "";
      const state = (live?.is_over && live.timeline?.state) || "";
      return { severity: live?.stands.is_alarm ? "error" : "info", title: state ? `The job has ended: ${state}` : "The job has ended", summary: state && word.endsWith(state) ? "" : word };
    }
    if (ranks?.suspected) {
      return { severity: "warning", title: "Suspected", summary: [ranks.suspected.reason, list(ranks.suspected.ranks)].filter(Boolean).join(" · "), more: "Stacks are being looked at: a verdict follows, or the suspicion is cleared." };
    }
    const alarm = live?.stands.is_alarm ? live.stands.word : "";
    if (PHASES[ranks?.phase]) return { severity: alarm ? "warning" : "info", title: PHASES[ranks.phase][0], summary: alarm || PHASES[ranks.phase][1] };
    if (alarm) {
      const [title, ...rest] = alarm.split(": ");
      return { severity: "warning", title: title[0].toUpperCase() + title.slice(1), summary: rest.join(": ") };
    }
    if (!ranks) return { severity: "info", title: "Waiting for the agent", summary: "" };
    const moves = ranks.ranks.some(has_stepped);
    return { severity: "none", title: moves ? "Training" : "Running", summary: moves ? "No rank is suspected." : "No rank is suspected; no step was seen yet." };
  }

  function render(element, live, ranks, shown) {
    const said = headline(live, ranks, shown);
    if (said.report) {
      Rankscope.verdict.render(element, said.report);
      const word = live?.stands.word || "";
      if (word && !shown && !live.is_over && !word.includes(said.report.head.summary)) element.append(html("p", { class: "decided" }, html("strong", {}, "Now: "), word));
      return said;
    }
    const job = live?.job || ranks?.job || "";
    element.className = `verdict severity-${said.severity}`;
    element.replaceChildren(...[
      html("p", { class: "where" }, html("span", { class: "job" }, job || "a job without a name"), ranks?.world_size ? html("span", {}, `${ranks.world_size} rank${ranks.world_size === 1 ? "" : "s"}`) : null),
      html("h1", {}, html("span", { class: "sign", "aria-hidden": "true" }, SIGNS[said.severity]), ` ${said.title}`),
      said.summary ? html("p", { class: "summary" }, said.summary) : null,
      said.more ? html("p", { class: "hint" }, said.more) : null,
    ].filter(Boolean));
    return said;
  }

  function figures(element, live, ranks) {
    const rows = ranks?.ranks || [];
    const fact = (name, said) => (said === null || said === "" || said === undefined ? null : html("div", {}, html("dt", {}, name), html("dd", {}, said)));
    const time = live?.timeline;
    const steps = rows.some(has_stepped);
    const last = live?.report && !live.is_current ? live.report.head : null;
    element.replaceChildren(...[
      fact("Phase", ranks?.phase?.replaceAll("_", " ")),
      rows.length ? fact("Step", steps ? span(rows.map((one) => one.step), String) : "no steps seen") : null,
      steps ? fact("Steps/s", span(rows.map((one) => one.steps_per_second), (value) => value.toFixed(2))) : null,
      fact("Since progress", span(rows.map((one) => one.seconds_since_progress), seconds)),
      fact("Restarts", ranks ? String(ranks.restart_count ?? live?.stands.restarts ?? "") : null),
      time ? fact("Wall time", seconds(time.wall)) : null,
      time ? fact("Not training", seconds(time.lost)) : null,
      live && !live.is_current ? fact("Last incident", last ? html("a", { href: "#found" }, `${last.verdict}, ${last.time.slice(0, 10)} ${last.time.slice(11, 19)} UTC`) : "none") : null,
    ].filter(Boolean));
  }

  return { render, figures, headline };
})();
