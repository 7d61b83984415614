// Questions to the daemon. The token of this page's own address goes along in a field, so that it stands in no log of
// addresses.

const ANSWER_WITHIN = 5000;  // milliseconds

class Refused extends Error {}

class DaemonConnection {
  constructor() {
    this.token = new URLSearchParams(window.location.search).get("token") ?? "";
  }

  async ask(path) {
    const answer = await fetch(path, {headers: {Authorization: `Bearer ${this.token}`}, cache: "no-store", signal: AbortSignal.timeout(ANSWER_WITHIN)});
    if (answer.status === 403) throw new Refused("another daemon serves here now: open the address that it has printed");
    if (!answer.ok) throw new Error(`the daemon answered with status ${answer.status}`);
    return answer.json();
  }
}
