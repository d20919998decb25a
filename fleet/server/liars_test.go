// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/ecdsa"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLiarsSteerNothing: a fleet of which one tenth sends whatever it likes ends a rollout
// where the same fleet ends it with that tenth silent: it goes as far, each other node has
// what it has there, and the service holds the node's own word, by its own key.
//
// A tenth means what the rule of the rollout bears: of five nodes in a wave one may fail.
// What a liar can do is told in docs/reports.md: of its own it can say that it waits, and
// hold its wave, by name, until an operator takes it out.
func TestLiarsSteerNothing(t *testing.T) { liars(t, 0, 2) }

func TestLongLiarsSteerNothing(t *testing.T) {
	require.Long(t)
	liars(t, 100, 30)
}

func liars(t *testing.T, from, seeds uint64) {
	require.Slow(t)
	halts := 0
	for seed := from; seed < from+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			silent, lying := newFleet(t, seed, false).run(), newFleet(t, seed, true).run()
			if silent != lying {
				t.Errorf("with one tenth silent:\n%s\nwith one tenth that lies:\n%s", silent, lying)
			}
			if strings.Contains(silent, spec.RolloutHalted) {
				halts++
			}
			if strings.Contains(silent, spec.RolloutRunning) {
				t.Errorf("it does not end:\n%s", silent)
			}
		})
	}
	if uint64(halts) == 0 || uint64(halts) == seeds {
		t.Errorf("%d of %d rollouts halt", halts, seeds)
	}
}

// liarsFleet is a service, the nodes that report to it, and one rollout.
type liarsFleet struct {
	*site
	mu     sync.Mutex // of now, which the service reads
	now    time.Time
	nodes  []*machine
	rows   index.Rows // what is published by now
	plan   *spec.RolloutPlan
	row    spec.Rollout
	driver *report.Reporters
	liar   *liar // nil: it says nothing
}

// machine is an honest node.
type machine struct {
	name, place  string
	key          *ecdsa.PrivateKey
	keys         map[string]bool // of all its boots
	grade        spec.KeyGrade
	boot         int
	seq          uint64
	skew         time.Duration // of its clock
	overlay      string
	since        time.Time // by the true clock
	next, comes  time.Time // its next report; when it is up again
	due          time.Time // when it takes what is published
	sick         bool      // with what the rollout brings
	dice         *rand.Rand
	lastReported []byte
}

const everyReport = 10 * time.Minute

func newFleet(t *testing.T, seed uint64, lies bool) *liarsFleet {
	driver, err := report.OpenReporters(t.TempDir()+"/none", true)
	if err != nil {
		t.Fatal(err)
	}
	f := &liarsFleet{driver: driver, now: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), rows: index.Rows{}, row: spec.Rollout{Phase: spec.RolloutRunning}}
	f.plan = &spec.RolloutPlan{Name: "r", Waves: []spec.Wave{{Name: "w0", Nodes: map[string]string{}}, {Name: "w1", Nodes: map[string]string{}}},
		Rule: spec.RolloutRule{Soak: 1200, Deadline: 2 * 3600, Silence: 1800, Percent: 25, Undo: spec.UndoNone}}
	var names []string
	for i := range 10 {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		f.rows[name] = spec.Published{Overlay: other(1), Generation: 1}
		f.plan.Waves[i/5].Nodes[name] = other(2)
		if i == 3 {
			continue // the liar
		}
		dice := rand.New(rand.NewPCG(seed, uint64(i)))
		m := &machine{name: name, place: fmt.Sprint("192.0.2.", i), key: newKey(t), grade: spec.KeyPinned, overlay: other(1), since: f.now.Add(-time.Hour), next: f.now, dice: dice}
		if m.skew = time.Duration(dice.IntN(72)-36) * time.Hour; dice.IntN(2) == 0 && i != 0 {
			m.grade = spec.KeyBoot
		}
		m.keys = map[string]bool{keyID(m.key): true}
		m.sick = i == 8 || i == 9 && seed%2 == 0 // two of five halt it
		f.nodes = append(f.nodes, m)
	}
	f.site = newSiteOver(t, store.Change{}, rowsOf(names...), func(s *site) {
		s.clock = func() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.now }
	})
	f.server.limits.now = f.clock
	if lies {
		f.liar = &liar{f: f, dice: rand.New(rand.NewPCG(seed, 99)), own: newKey(t)}
	}
	return f
}

// send posts from a place and returns the answer's status and text.
func (f *liarsFleet) send(place, method, path string, body []byte, headers ...string) (int, string) {
	req := httptest.NewRequest(method, f.url+path, bytes.NewReader(body))
	req.RemoteAddr = place + ":1"
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

// step is a minute of an honest node.
func (m *machine) step(f *liarsFleet) {
	if f.now.Before(m.comes) {
		return
	}
	if want := f.rows[m.name].Overlay; want != m.overlay {
		switch {
		case m.due.IsZero():
			m.due = f.now.Add(time.Duration(1+m.dice.IntN(9)) * time.Minute)
		case !f.now.Before(m.due):
			m.overlay, m.since, m.next, m.due = want, f.now, f.now, time.Time{}
			if m.dice.IntN(2) == 0 {
				m.boot++
				m.comes = f.now.Add(time.Duration(2+m.dice.IntN(4)) * time.Minute)
				m.since, m.next = m.comes, m.comes
				if m.grade == spec.KeyBoot {
					m.key, m.seq = newKey(f.TB), 0
					m.keys[keyID(m.key)] = true
				}
				return
			}
		}
	}
	if f.now.Before(m.next) {
		return
	}
	m.next = f.now.Add(everyReport - time.Duration(m.dice.IntN(60))*time.Second)
	m.seq++
	m.lastReported = sealed(f.TB, m.key, m.name, m.seq, func(r *spec.Report) {
		r.Time, r.Interval, r.Grade, r.BootID, r.Overlay = f.now.Add(m.skew), int64(everyReport/time.Second), m.grade, fmt.Sprint("boot", m.boot), m.overlay
		r.Axes.Health.Since, r.Axes.Sync.Since = m.since.Add(m.skew), m.since.Add(m.skew)
		if m.sick && m.overlay == other(2) {
			r.Axes.Health.State = "degraded"
		}
	})
	if status, text := f.send(m.place, "POST", "/v1/report", m.lastReported); status != http.StatusNoContent {
		f.Fatalf("%s: its own report: %d %s", m.name, status, text)
	}
}

// mine fails where another key counts for a node than one of its own.
func (f *liarsFleet) mine() {
	f.Helper()
	for _, m := range f.nodes {
		if !m.keys[f.counts(m.name)] {
			f.Fatalf("at %s a stranger speaks for %s", f.now.Format(time.TimeOnly), m.name)
		}
	}
}

// counts returns the key that counts for a node.
func (f *liarsFleet) counts(node string) string {
	f.Helper()
	d, err := f.hub.Node(f.Context(), node)
	if err != nil {
		f.Fatal(err)
	}
	return d.Key
}

// drive is a look of the driver, which publishes by rows.
func (f *liarsFleet) drive() {
	status, text := f.send("192.0.2.200", "GET", "/v1/reports?signed=1", nil)
	asked := report.Asked{Fleet: "metal", Published: map[string]bool{}}
	for name := range f.rows {
		asked.Published[name] = true
	}
	reports, err := report.Hear(strings.NewReader(text), asked, f.driver, f.now)
	if err != nil || status != http.StatusOK {
		f.Fatalf("the driver reads %d, %v", status, err)
	}
	d := rollout.Next(f.plan, f.row, rollout.Known{Rows: f.rows, Reports: reports}, f.now)
	give := func() {
		for _, name := range d.Nodes {
			f.rows[name] = spec.Published{Overlay: other(2), Generation: 2}
		}
	}
	switch d.Act {
	case rollout.Wait:
	case rollout.Begin:
		for len(f.row.Waves) <= d.Wave {
			f.row.Waves = append(f.row.Waves, spec.RolloutWave{Begun: f.now.Unix()})
		}
		give()
	case rollout.Finish:
		if f.row.Waves[d.Wave].Done = f.now.Unix(); d.Wave == len(f.plan.Waves)-1 {
			f.row.Phase = spec.RolloutDone
		}
	case rollout.Halt:
		f.row.Phase = spec.RolloutHalted
	case "late": // some that were silent are given it as well
		give()
	default: // an end
		f.row.Phase = spec.RolloutDone
	}
}

// run lets eight hours pass, and tells what is then.
func (f *liarsFleet) run() string {
	for _, m := range f.nodes {
		m.step(f)
	}
	n0 := f.nodes[0]
	lock := []byte(`{"client_params":{"id":"n0","group":"default"}}`)
	taken := proof(f.TB.(*testing.T), n0.key, func(r *spec.SlotRequest) { r.Node, r.BootID, r.Time = "n0", "boot0", f.now })
	if status, text := f.send(n0.place, "POST", "/v1/pre-reboot", lock, "fleet-lock-protocol", "true", ProofHeader, taken); status != http.StatusOK {
		f.Fatalf("%d %s", status, text)
	}
	for minute := range 8 * 60 {
		f.mu.Lock()
		f.now = f.now.Add(time.Minute)
		f.mu.Unlock()
		order := slices.Clone(f.nodes)
		if f.liar != nil {
			f.liar.dice.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			f.liar.step()
		}
		f.mine()
		for _, m := range order {
			m.step(f)
		}
		if minute%4 == 0 && minute > 30 {
			f.drive()
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d waves, the slot is held by %v\n", f.row.Phase, len(f.row.Waves), f.hub.Slots()[0].Held)
	shown := f.hub.Nodes()
	for _, m := range f.nodes {
		n := shown[slices.IndexFunc(shown, func(n view.Judged) bool { return n.Name == m.name })]
		fmt.Fprintf(&b, "%s: given %s, says %s, %s, by its own key: %v, %s\n", m.name, f.rows[m.name].Overlay[64:], n.Report.Overlay[64:], n.Report.Axes.Health.State, f.counts(m.name) == keyID(m.key), n.Grade)
	}
	return b.String()
}

// liar is a node that sends whatever it likes, in whatever name, from its own places.
type liar struct {
	f    *liarsFleet
	dice *rand.Rand
	own  *ecdsa.PrivateKey
	seq  uint64
	keys []*ecdsa.PrivateKey
}

func pick[T any](d *rand.Rand, of ...T) T { return of[d.IntN(len(of))] }

// at is a time, of now or of none.
func (l *liar) at() time.Time {
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 86340)) }
	return pick(l.dice, l.f.now, l.f.now.Add(-time.Hour), l.f.now.Add(48*time.Hour), year(0), year(1970), year(9999), time.Time{})
}

func (l *liar) text() string {
	return pick(l.dice, "", "ok", "broken", strings.Repeat("<", 4000), "\x00\n\x1b[2J", "\u202e", strings.Repeat("é", 200))
}

// lie makes a report say something else than the truth.
func (l *liar) lie(r *spec.Report) {
	d := l.dice
	axis := func(states ...string) spec.Axis {
		return spec.Axis{State: pick(d, append(states, l.text())...), Detail: l.text(), Since: l.at(), Until: l.at()}
	}
	r.Axes = spec.Axes{Health: axis("ok", "degraded", "broken", "quarantined"), Sync: axis("current", "refused:signature", "unreachable"), Tracking: axis("following", "frozen"), Activity: axis("idle", "running:x")}
	r.Time, r.Expires, r.Agent, r.LayerVersion = l.at(), l.at(), l.text(), l.text()
	r.Overlay, r.Staged = other(1+d.IntN(2)), pick(d, "", other(2), "x")
	r.Interval, r.Generation, r.Epoch, r.More = pick(d, int64(0), -1, 600, 1<<60), d.Uint64(), d.Uint64(), d.IntN(1<<30)
	r.Grade = pick(d, spec.KeyPinned, spec.KeyBoot)
	for range d.IntN(5) {
		r.Drift = append(r.Drift, spec.Drift{Item: l.text(), Key: l.text(), Since: l.at()})
		r.Operations = append(r.Operations, spec.OperationStatus{Name: l.text(), Next: l.at()})
		r.Boot = append(r.Boot, spec.Step{Name: l.text(), Start: float64(d.IntN(9)), Took: pick(d, 1, -1, 1e300)})
	}
	r.Services = map[string]string{l.text(): l.text()}
}

// sealed is a report of the liar's as long as one may be.
func (l *liar) sealed(key *ecdsa.PrivateKey, node string, change func(*spec.Report)) []byte {
	r := spec.NewReport(&spec.Status{Fleet: "metal", Node: node, BootID: "liar"})
	l.seq++
	r.Seq = l.seq
	l.lie(r)
	r.Key = sign.VerifierOf(key).ID()
	if change != nil {
		change(r)
	}
	data, err := spec.Encode(r)
	if err != nil || len(data) > 11_000 { // or it is never looked at
		r.Axes, r.Drift, r.Operations, r.Services, r.Agent, r.LayerVersion = spec.Axes{}, nil, nil, nil, "", ""
		r.Axes.Health.Detail = strings.Repeat("<", 9000)
		r.Time, r.Expires = l.f.now, l.f.now
		if data, err = spec.Encode(r); err != nil {
			l.f.Fatal(err)
		}
	}
	raw, err := sign.SignReport(key, data)
	if err != nil {
		l.f.Fatal(err)
	}
	return raw
}

// step is a minute of the liar's.
func (l *liar) step() {
	f, d := l.f, l.dice
	place := fmt.Sprint("203.0.113.", d.IntN(3))
	victim := f.nodes[d.IntN(len(f.nodes))]
	for range d.IntN(3) {
		switch d.IntN(8) {
		case 0, 1: // in its own name
			f.send(place, "POST", "/v1/report", l.sealed(l.own, "n3", nil))
		case 2: // its own key in another's name
			f.send(place, "POST", "/v1/report", l.sealed(l.own, victim.name, nil))
		case 3, 4: // a key for it, in a boot that may be the node's
			if len(l.keys) < 5 || d.IntN(4) == 0 {
				l.keys = append(l.keys, newKey(f.TB))
			}
			boot := pick(d, "x", "y", fmt.Sprint("boot", victim.boot), fmt.Sprint("boot", victim.boot+1))
			f.send(place, "POST", "/v1/report", l.sealed(l.keys[d.IntN(len(l.keys))], victim.name, func(r *spec.Report) { r.BootID = boot }))
		case 5: // what another one sent, again
			f.send(place, "POST", "/v1/report", victim.lastReported)
		case 6:
			f.send(place, "POST", "/v1/report", claims(keyID(victim.key)))
			hint := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"fleet":"metal","node":%q,"why":"dead"}`, spec.APIVersion, spec.KindHint, victim.name)
			f.send(place, "POST", "/v1/hint", []byte(hint))
		case 7: // the slot of n0
			key := pick(d, append(l.keys, l.own)...)
			p := proof(f.TB.(*testing.T), key, func(r *spec.SlotRequest) {
				r.Node, r.Act, r.BootID, r.Time = "n0", "steady-state", pick(d, "x", "boot0"), f.now
			})
			f.send(place, "POST", "/v1/steady-state", []byte(`{"client_params":{"id":"n0","group":"default"}}`), "fleet-lock-protocol", "true", ProofHeader, p)
		}
	}
}
