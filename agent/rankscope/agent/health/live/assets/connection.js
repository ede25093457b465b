// The line to the agent's server: the document, the stream of events, and how old what is shown is. It draws nothing.
//
// `follow({ ranks, page, state })` calls back with the ranks as they are now, with the document whenever something may have
// changed it, and with the state of the line: "connecting", "live", "old" (lost, or silent), "refused", "gone".
Rankscope.connection = (() => {
  const EVENTS = [
    "job.started", "cycle.started", "cycle.training", "cycle.ended", "worker.failed", "suspected", "stopping", "worker.left", "cleared",
    "analyzed", "incident.confirmed", "incident.recovered", "slow", "decision", "restart.begun", "restart", "restarts.told", "isolated", "notice.failed", "message",
    "settings.changed", "job.ended", "reset",
  ];
  const SILENT = 15;  // s without a word after which what is shown is called old; the server says something every 5 s
  const AGAIN = 3;  // s until the next try
  const REFRESH = 30;  // s after which the document is asked for anyway: durations in it grow
  const GATHER = 0.3;  // s in which several events cost one request

  const wait = (seconds, act) => setTimeout(act, 1000 * seconds);

  function follow({ ranks, page, state }) {
    let source = null;
    let heard = 0;  // Date.now() of the last word: a laptop's sleep counts
    let line = "connecting";
    let why = "";
    let asking = false, again = false, gathering = false, asked = 0;

    const tell = () => state({ line, why, age: heard ? Math.max(0, (Date.now() - heard) / 1000) : null });

    function set(next, reason = "") {
      line = next;
      why = reason;
      tell();
    }

    function hear() {
      heard = Date.now();
      if (line !== "live") set("live");
    }

    // What a refused or failed request says, in a sentence.
    async function problem(answer) {
      try {
        const said = await answer.json();
        return said.detail || said.title || `status ${answer.status}`;
      } catch {
        return `status ${answer.status}`;
      }
    }

    // The records did not come: said, and asked for again.
    function fail(reason) {
      page(null, `The records could not be read: ${reason}`);
      wait(AGAIN, gather);
    }

    async function ask() {
      if (asking) {
        again = true;
        return;
      }
      asking = true;
      asked = Date.now();
      try {
        const answer = await fetch("v1/page", { cache: "no-store", signal: AbortSignal.timeout(20000) });
        if (answer.ok) page(await answer.json(), "");
        else if (answer.status === 401 || answer.status === 403) refuse();
        else fail(await problem(answer));
      } catch (error) {
        if (line === "live") fail(error.name === "TimeoutError" ? "no answer within 20 s" : "no answer");
      }
      asking = false;
      if (again) {
        again = false;
        gather();
      }
    }

    function gather() {
      if (gathering) return;
      gathering = true;
      wait(GATHER, () => {
        gathering = false;
        ask();
      });
    }

    function refuse() {
      source?.close();
      source = null;
      set("refused");
    }

    // The stream will not come back by itself: find out why, and try again.
    async function look() {
      try {
        const answer = await fetch("v1/ranks", { cache: "no-store", signal: AbortSignal.timeout(10000) });
        if (answer.status === 401 || answer.status === 403) return refuse();
        if (answer.ok) return open();
      } catch {
        // not there yet
      }
      wait(AGAIN, look);
    }

    function lose() {
      if (line !== "gone") set("old", "lost");
      if (source?.readyState !== EventSource.CLOSED) return;  // it tries again by itself, with the last event's id
      source = null;
      wait(AGAIN, look);
    }

    function open() {
      source = new EventSource("v1/stream");
      source.addEventListener("open", () => {
        hear();
        gather();  // whatever was missed is in it
      });
      source.addEventListener("error", lose);
      source.addEventListener("alive", hear);
      source.addEventListener("ranks", (event) => {
        hear();
        ranks(JSON.parse(event.data));
      });
      source.addEventListener("gone", (event) => {
        let reason = "";
        try {
          reason = JSON.parse(event.data).reason || "";
        } catch {
          // it is gone, whatever it says
        }
        source?.close();
        source = null;
        set("gone", reason);
        wait(AGAIN, look);  // another agent may come at the same address
      });
      for (const name of EVENTS) {
        source.addEventListener(name, () => {
          hear();
          gather();
        });
      }
    }

    setInterval(() => {
      if (line === "live" && (Date.now() - heard) / 1000 > SILENT) set("old", "silent");
      else tell();
      if (line === "live" && (Date.now() - asked) / 1000 > REFRESH) gather();
    }, 1000);
    open();
    ask();
    return { ask: gather, problem };
  }

  return { follow, EVENTS };
})();
