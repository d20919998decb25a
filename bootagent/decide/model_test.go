// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
)

// content holds everything that a publisher can do to a node. It never changes, so that what holds
// once holds always.
type content struct {
	layer string
	cuts  bool // it can cut the node off
	cut   bool // and does
	fails bool // applying it fails in the middle
	busy  bool // it takes away what a running root uses
	sick  bool // it does not pass its checks
	gated bool
	dead  bool // its layer never comes up
	asks  bool // it is to be confirmed
	reads bool // only a boot reads some of it
	shut  bool // and what is read then cuts the node off
}

// model is a node whose calls fail. What is in effect is the machine's real state;
// all else is what the node knows.
type model struct {
	r        *rand.Rand
	contents map[string]content
	offered  *state.Generation // what the registry has
	attached bool
	paused   bool
	held     bool

	disk  state.State // what is on the disk
	live  record.Live // in /run, of this root
	root  state.Generation
	boot  int
	up    time.Duration
	now   int64 // of the clock, in seconds
	begun bool
	gates string // overlay that is judged
	reach bool   // it has to reach the registry

	outage bool   // the registry answers nobody
	heard  bool   // it answered the loader of this boot, of a node that nobody holds
	read   string // the overlay that this boot has read

	untested map[string]bool // overlays that were applied while nobody answered: nothing shows what they did

	effect  string   // the overlay that the machine is as
	partial bool     // but for what can cut it off
	proved  []string // overlays that proved themselves here
	fault   int      // calls until one fails; 0 is none
	kill    bool     // the failing call is a cut: this process, or the power, is gone
	log     []entry
}

// entry is a decision, or what became of one thing that happened.
type entry struct {
	step    string
	event   Event
	phase   Phase
	err     error
	effect  string
	decided bool
}

func (e entry) String() string {
	if e.decided {
		return fmt.Sprintf("%s/%s: %s", e.event, e.phase, e.step)
	}
	return fmt.Sprintf("-- %s%v; runs %q", e.step, e.err, e.effect)
}

var (
	errFault = errors.New("the call failed")
	errCut   = errors.New("cut")
)

// call is one thing that is done outside of the node's memory.
func (m *model) call() error {
	if m.fault > 0 {
		if m.fault--; m.fault == 0 {
			if m.kill {
				return errCut
			}
			return errFault
		}
	}
	return nil
}

// save changes the state on the disk, or does not.
func (m *model) save(change func(s *state.State)) error {
	if err := m.call(); err != nil {
		return err
	}
	s := m.disk.Clone()
	change(s)
	m.disk = *s
	return nil
}

// choose returns the generation that the loader enters, nil where it starts the machine over, or
// waits until it is.
func (m *model) choose() *state.Generation {
	g, step := m.offered, Step{Act: AskMedium}
	m.heard = g != nil && !m.outage && m.r.IntN(3) > 0
	if m.heard {
		g, step = m.answers(false)
	} else {
		f := m.facts(Boot)
		f.Offer = Offer{Failed: true, Unreached: m.r.IntN(2) == 0}
		step = m.decide(f)
	}
	if step.Act == Enter || step.Act == EnterOld {
		step = m.fetches(false)
	}
	if step.Act == AskMedium && m.offered != nil && m.r.IntN(4) == 0 {
		if g, step = m.answers(true); step.Act == Enter || step.Act == EnterOld {
			step = m.fetches(true)
		}
		m.heard = false
	} else if step.Act == AskMedium { // there is none
		f := m.facts(Boot)
		f.Offer = Offer{Failed: true, Unreached: true, Medium: true}
		step = m.decide(f)
	}
	switch step.Act {
	case Enter:
		return g
	case AskMedium:
		m.fail("a medium is asked beside a medium")
	}
	f := m.facts(Sought)
	all := m.disk.Generations()
	if m.heard {
		all = m.disk.Fallbacks()
	}
	f.Back.Found = len(all) > 0
	if m.r.IntN(4) == 0 {
		f.Back.Kexec = "nothing was reached"
	}
	if m.r.IntN(4) == 0 {
		f.Back.Overdue = "it is on trial"
	}
	if m.decide(f).Act == Enter {
		return all[0]
	}
	return nil
}

// answers returns the offer of the registry, or of a medium, to the loader, and the decision.
func (m *model) answers(medium bool) (*state.Generation, Step) {
	g := m.offered
	o := Offer{Medium: medium, Generation: *g, Unchanged: m.disk.Current != nil && m.disk.Current.Same(*g), Held: m.disk.Current != nil && (m.disk.Trial.Of(*g) && !m.disk.Trial.Begins() || m.held)}
	if !o.Held {
		m.disk.Accept(*g)
		if m.disk.Staged != nil {
			o.Generation = *m.disk.Staged
		}
	}
	o.Attempts = o.Generation.Attempts
	f := m.facts(Boot)
	f.Offer = o
	step := m.decide(f)
	if step.Act == EnterOld {
		return m.disk.Generations()[0], step
	}
	return &o.Generation, step
}

// fetches returns the decision after fetching a layer, which may fail.
func (m *model) fetches(medium bool) Step {
	f := m.facts(Fetched)
	if f.Fetch.Medium = medium; m.r.IntN(4) == 0 {
		f.Fetch.Why = "it is not here"
		switch m.r.IntN(4) {
		case 0:
			f.Fetch.Late = true
		case 1:
			f.Fetch.TooLarge = true
		case 2:
			f.Fetch.Unreached = true
		}
	}
	return m.decide(f)
}

// make makes the machine as an overlay says. Cut in between, it is neither.
func (m *model) make(overlay string) error {
	m.effect, m.partial = "half of "+overlay, false
	if err := m.call(); err != nil {
		return err
	}
	m.effect = overlay
	return nil
}

// reached reports whether the registry answers this machine as it is.
func (m *model) reached() bool {
	return !m.outage && !(m.contents[strings.TrimPrefix(m.effect, "half of ")].cut && !m.partial) && !m.contents[m.read].shut
}

func (m *model) here(layer string) bool { return m.attached || layer == m.root.Layer }

func (m *model) runs() *state.Generation {
	return Runs(&m.disk, m.root, m.live.Applied, fmt.Sprint(m.boot), m.here)
}

func (m *model) facts(e Event) *Facts {
	s := m.disk.Clone()
	f := &Facts{Event: e, Attached: m.attached, Begun: m.begun, Remembers: true, Boot: fmt.Sprint(m.boot), Up: m.up, Now: m.now,
		Best: s.Best(), Current: s.Current, Staged: s.Staged, Ahead: s.Ahead, Runs: m.runs(), Root: m.root, Without: m.live.Without}
	if t := s.Trial; t != nil && !t.Pending() {
		f.Undone = &t.Generation
	}
	f.Elsewhere = f.Best != nil && !m.here(f.Best.Layer)
	f.Doubt = s.Tells(f.Runs)
	if m.paused && m.begun {
		f.Paused = "paused"
	}
	f.Run = ReadRun(s, &m.live, RunRoot{Attached: m.attached, Begun: m.begun, By: m.root, Boot: f.Boot, Runs: f.Runs, Judged: f.Runs != nil && m.gates == f.Runs.Overlay})
	return f
}

// decide asks, and holds what never may be.
func (m *model) decide(f *Facts) Step {
	s := Next(f)
	m.log = append(m.log, entry{step: s.Name, event: f.Event, phase: f.Run.Phase, decided: true})
	pending := m.disk.Trial.Pending()
	switch {
	case pending && (s.Act == Change || s.Act == BackLive || s.Act == BackBoot):
		m.fail("two disruptive acts at once")
	case f.Paused != "" && (s.Act == Change || s.Act == BackLive || s.Act == BackBoot || s.Act == Keep):
		m.fail("a paused node is changed")
	case f.Event == Begin && s.Act == PutBack && m.disk.Trial.Early && m.disk.Trial.Boot == f.Boot && !m.begun && m.live.Applied == nil:
		m.fail("what was begun before services started is undone")
	case m.held && m.disk.Current != nil && s.Act == Change:
		m.fail("a held node moves")
	}
	return s
}

func (m *model) fail(why string) {
	for _, e := range m.log {
		why += "\n" + e.String()
	}
	panic(why)
}

// undo plays the undoing of a change on trial.
func (m *model) undo(why string, doubt bool) error {
	f := m.facts(Undo)
	best, tried := m.disk.Best(), m.disk.Trial.Generation
	if best == nil || !m.here(best.Layer) {
		if best = m.live.Applied; best != nil && (best.Same(tried) || !m.here(best.Layer)) {
			best = nil
		}
	}
	f.Undo = Fault{Reason: why, WayBack: best != nil}
	step := m.decide(f)
	back := tried.Overlay
	live := f.Undo.WayBack && !(m.disk.Trial.Early && step.Act == Forget)
	if live {
		back = best.Overlay
	}
	if err := m.make(back); err != nil {
		return err
	}
	if m.partial = !live; live {
		if err := m.call(); err != nil {
			return err
		}
		if a := m.live.Applied; a == nil && !best.Pair(m.root) || a != nil && !(a.Same(*best) && a.Pair(*best)) {
			m.gates, m.live.Stuck, m.live.Applied = "", "", best
			if best.Pair(m.root) {
				m.live.Applied = nil
			}
		}
	}
	if step.Act == Withhold {
		if err := m.call(); err != nil {
			return err
		}
		m.live.Without = &record.Without{Overlay: tried.Overlay, Generation: tried.Generation, Reason: why}
		m.root = tried
	}
	return m.save(func(s *state.State) {
		if step.Act == Forget || step.Act == Withhold && s.Current == nil {
			s.Trial = nil
		} else {
			if doubt && step.Act == Restore {
				s.Doubt(tried)
			}
			s.Undo(why)
		}
	})
}

// compare plays what follows from the way to the registry without what is doubted.
func (m *model) compare() error {
	f := m.facts(Doubted)
	if f.Outage = !m.heard; !m.reached() {
		f.Reach = "no answer"
	}
	step := m.decide(f)
	if c := m.contents[m.disk.Doubted.Overlay]; step.Act == Convict && !c.cut && !c.shut {
		m.fail("a registry that died rejects what is well")
	}
	return m.save(func(s *state.State) {
		if step.Act == Absolve {
			s.Absolve()
		}
		s.Doubted = nil
	})
}

// begin ends what was left unfinished.
func (m *model) begin() error {
	for range 10 {
		step := m.decide(m.facts(Begin))
		if step.Act == Go {
			return nil
		}
		if step.Act == Forget {
			if err := m.save(func(s *state.State) { s.Trial = nil }); err != nil {
				return err
			}
			continue
		}
		if step.Act == Compare {
			if err := m.compare(); err != nil {
				return err
			}
			continue
		}
		if err := m.undo(step.Why, false); err != nil {
			return err
		}
	}
	m.fail("what is unfinished never ends")
	return nil
}

// look is a look of the service.
func (m *model) look() error {
	if err := m.begin(); err != nil {
		return err
	}
	if err := m.looks(); err != nil || m.disk.Early == nil {
		return err
	}
	return m.save(func(s *state.State) { s.Early = nil })
}

// early plays what is set before services start. A cut ends it, and the boot goes on.
func (m *model) early() error {
	g, f := m.runs(), m.facts(Early)
	if m.contents[g.Overlay].cuts {
		f.Prior.Cuts = "network"
	}
	f.Prior.Heard, f.Prior.Runs = m.heard, m.disk.Early.Of(g.Overlay)
	act := m.decide(f).Act
	switch act {
	case LeaveOut:
		return m.save(func(s *state.State) { s.Early = nil })
	case SetOnTrial, Set, SetHarmless:
	default:
		m.fail("nothing is set on a root that has just come up")
	}
	if err := m.save(func(s *state.State) {
		if s.Early = (&state.EarlyRuns{Overlay: g.Overlay, Runs: s.Early.Of(g.Overlay) + 1}); act == SetOnTrial {
			s.Trial = &state.Trial{Generation: *g, Confirm: state.ByReach, Boot: fmt.Sprint(m.boot), Within: 60, Early: true}
		}
	}); err != nil || act == SetHarmless {
		return err
	}
	return m.make(g.Overlay)
}

func (m *model) looks() error {
	f := m.facts(Look)
	switch m.decide(f).Act {
	case ComeUp:
		return m.try(f, *f.Runs, true)
	case Keep:
		return m.keep(*f.Runs)
	case Return:
		m.start()
	}
	return nil
}

func (m *model) keep(g state.Generation) error {
	partial := m.live.Without != nil && m.live.Without.Overlay == g.Overlay
	if err := m.make(g.Overlay); err != nil {
		return err
	}
	m.partial = partial
	err := m.effects(g, Proof{Keeps: true, Applied: true})
	m.begun = true
	return err
}

// effects plays that a generation is in effect.
func (m *model) effects(g state.Generation, p Proof) error {
	f := m.facts(Effect)
	p.Unproven = (!m.attached && g.Pair(m.root) || m.live.Applied != nil && m.live.Applied.Same(g)) && m.disk.Unproven(g)
	reach := p.Unproven && m.heard && g.Pair(m.root) && !m.attached && m.disk.Back(g) != nil && !m.reached()
	p.Of, p.Gates, p.Soaking = g, m.contents[g.Overlay].gated || reach, m.gates == g.Overlay
	f.Proof = p
	switch m.decide(f).Act {
	case Renumber:
		m.live.Applied = &g
	case Prove:
		return m.prove(g)
	case Soak:
		if err := m.save(func(s *state.State) { s.Trial = nil }); err != nil {
			return err
		}
		if err := m.call(); err != nil {
			return err
		}
		m.live.Applied, m.live.Stuck = &g, ""
		if p.Applied && !p.Keeps {
			m.live.Without = nil // in the same file
		}
		if err := m.call(); err != nil {
			return err
		}
		m.gates, m.reach = g.Overlay, reach
	}
	return nil
}

// unread returns the part of a generation that no boot has read.
func (m *model) unread(g state.Generation) string {
	best := m.disk.Best()
	switch {
	case best == nil || m.attached || g.Pair(m.root) && (m.heard || m.disk.Back(g) == nil):
		return ""
	case g.Pair(m.root):
		return "all of it"
	case m.contents[g.Overlay].reads:
		return "files"
	}
	return best.Unread
}

func (m *model) prove(g state.Generation) error {
	g.Unread = m.unread(g)
	if g.Pair(m.root) && m.heard && m.contents[m.read].shut && m.disk.Unproven(g) && m.disk.Back(g) != nil {
		m.fail("a boot that cut the node off is proved")
	}
	if err := m.save(func(s *state.State) { s.Prove(g) }); err != nil {
		return err
	}
	m.proved = append(m.proved, g.Overlay)
	m.gates, m.live.Applied, m.live.Stuck = "", nil, ""
	return nil
}

// ask plays a question to the registry.
func (m *model) ask() error {
	if err := m.begin(); err != nil {
		return err
	}
	reached := m.offered != nil && m.reached()
	f := m.facts(Answer)
	var next state.Generation
	if !reached || m.call() != nil {
		f.Offer.Failed = true
	} else {
		o := Offer{Generation: *m.offered}
		s := m.disk.Clone()
		switch {
		case s.Current != nil && s.Current.Same(o.Generation):
			o.Unchanged = true
		case s.Current != nil && (s.Trial.Of(o.Generation) || m.held):
			o.Held = true
		}
		if !o.Held {
			if err := m.save(func(s *state.State) { s.Accept(o.Generation) }); err != nil {
				return err
			}
			if m.disk.Staged != nil {
				o.Generation = *m.disk.Staged
			}
		}
		f = m.facts(Answer)
		o.Attempts = o.Generation.Attempts
		if o.Generation.Pair(m.root) {
			o.Attempts = 0
		}
		o.Here = m.here(o.Generation.Layer)
		o.Live = m.attached || f.Runs == nil || o.Generation.Layer == f.Runs.Layer
		f.Offer, next = o, o.Generation
	}
	for {
		switch step := m.decide(f); step.Act {
		case PutBack:
			if err := m.undo(step.Why, false); err != nil {
				return err
			}
			offer := f.Offer
			f = m.facts(Answer)
			f.Offer = offer
			continue
		case NoteNumber:
			if err := m.effects(next, Proof{}); err != nil {
				return err
			}
			return m.look()
		case LookNow, Decline:
			return m.look()
		case Change:
			return m.try(f, next, false)
		}
		return nil
	}
}

// try plays a change.
func (m *model) try(f *Facts, g state.Generation, comesUp bool) error {
	was, c := f.Runs, m.contents[g.Overlay]
	if s := m.disk.Staged; s != nil && s.Same(g) && s.Again != 0 {
		if err := m.save(func(s *state.State) { s.TryAgain(g) }); err != nil && (!comesUp || errors.Is(err, errCut)) {
			return err
		}
	}
	t := m.facts(Try)
	if c.cuts {
		t.Try.Cuts = "network"
		if comesUp && !m.reached() {
			t.Try.Unreached = "no answer"
		}
	}
	t.Try.Asked = c.asks && m.disk.Current != nil
	var by state.Confirm
	switch m.decide(t).Act {
	case ComeUpWithout:
		if err := m.undo("", false); err != nil {
			return err
		}
		return m.looks()
	case TryForReach:
		by = state.ByReach
	case TryForOperator:
		by = state.ByOperator
	default:
		if comesUp {
			if t.Try.Unreached != "" {
				m.untested[g.Overlay] = true
			}
			return m.keep(g)
		}
	}
	if by != "" {
		if err := m.save(func(s *state.State) {
			s.Trial = &state.Trial{Generation: g, Confirm: by, Boot: fmt.Sprint(m.boot), Within: 60}
		}); err != nil {
			return err
		}
	}
	made := m.facts(Made)
	made.Result.Trial = by
	err := m.make(g.Overlay)
	if errors.Is(err, errCut) {
		return err
	}
	if (err != nil || c.fails || c.busy) && was != nil && !comesUp {
		made.Result.Failed, made.Result.RolledBack, made.Result.Busy = true, true, c.busy
		if err := m.make(was.Overlay); err != nil {
			return err
		}
		m.partial = m.live.Without != nil && m.live.Without.Overlay == was.Overlay
	}
	switch m.decide(made).Act {
	case RejectChange:
		return m.save(func(s *state.State) { s.Reject(g, "it failed", time.Unix(0, 0)); s.Trial = nil })
	case RetryInAWhile:
		return m.save(func(s *state.State) {
			s.Postpone(g, "busy", time.Unix(m.now, 0))
			s.Trial = nil
		})
	case RetrySoon:
		return m.save(func(s *state.State) { s.Trial = nil })
	case AwaitOperator:
		err := m.save(func(s *state.State) { s.Trial.Ends = int64(m.up/time.Second) + s.Trial.Within })
		m.begun = true
		return err
	case DeferToBoot:
		m.fail("it was begun")
	case Probe:
		p := m.facts(Probed)
		if !m.reached() {
			p.Reach = "no answer"
		}
		if m.decide(p).Act == UndoForGood {
			err := m.undo("after it no answer", true)
			m.begun = m.begun || err == nil
			return err
		}
	}
	if err = m.effects(g, Proof{Applied: true}); err == nil {
		m.live.Without, m.begun = nil, true
	}
	return err
}

// judge plays a look at the checks.
func (m *model) judge() error {
	if err := m.begin(); err != nil {
		return err
	}
	g := m.runs()
	if g == nil || m.gates != g.Overlay {
		return nil
	}
	f := m.facts(Judged)
	sick := m.contents[g.Overlay].sick || m.disk.Staged != nil && m.disk.Staged.Same(*g) && m.disk.Staged.Failed != "" && m.disk.Staged.Again == 0
	cutOff := m.reach && !m.reached()
	sick = sick || cutOff
	f.Gates = Gates{Passed: !sick, Failed: sick, CutOff: cutOff}
	best := m.disk.Best()
	if g.Pair(m.root) {
		best = m.disk.Back(*g)
	}
	if best != nil && !best.Pair(*g) {
		f.Gates.Good, f.Gates.SameLayer, f.Gates.Live = true, m.here(best.Layer), m.here(best.Layer)
	}
	reject := func(s *state.State) {
		if cutOff {
			s.Doubt(*g)
		}
		s.GoBack(*g, *best, "sick", time.Unix(0, 0))
	}
	switch m.decide(f).Act {
	case Prove:
		return m.prove(*g)
	case KeepLooking:
		m.live.Stuck = "sick"
	case BackLive:
		if err := m.save(reject); err != nil {
			return err
		}
		if err := m.call(); err != nil {
			return err
		}
		m.live.Applied, m.live.Stuck, m.gates = best, "", ""
		return m.make(best.Overlay)
	case BackBoot:
		if err := m.save(reject); err != nil {
			return err
		}
		m.start()
	}
	return nil
}

// start is a boot, however it came: the loader decides. A layer that is dead starts the
// machine over.
func (m *model) start() {
	for range 3*state.MaxAttempts + 3 {
		m.boot++
		m.up, m.live, m.gates, m.reach, m.begun, m.partial, m.read, m.heard = 0, record.Live{}, "", false, false, false, "", false
		if m.attached {
			m.effect, m.root = "", state.Generation{}
			return
		}
		enter := m.choose()
		if enter == nil {
			m.root, m.effect = state.Generation{}, ""
			continue
		}
		m.heard = m.heard && !m.held
		if m.heard {
			m.disk.Retest(*enter)
		}
		if s := m.disk.Staged; s != nil && s.Pair(*enter) {
			s.Attempts++
		}
		m.root, m.effect, m.read = *enter, "", enter.Overlay
		if !m.contents[enter.Overlay].dead || m.wasProved(enter.Overlay) {
			m.log = append(m.log, entry{step: "early: ", err: m.early(), effect: m.effect})
			return
		}
	}
	if len(m.proved) > 0 {
		m.fail("the machine starts over and over, though something proved itself")
	}
}

func (m *model) wasProved(overlay string) bool {
	for _, p := range m.proved {
		if p == overlay {
			return true
		}
	}
	return false
}

// event plays one thing that happens.
func (m *model) event() {
	m.fault, m.kill = 0, false
	if m.r.IntN(3) == 0 {
		m.fault, m.kill = 1+m.r.IntN(8), m.r.IntN(2) == 0
	}
	var err error
	switch m.r.IntN(12) {
	case 0, 1, 2:
		err = m.look()
	case 3, 4, 5:
		err = m.ask()
	case 6, 7:
		err = m.judge()
	case 8:
		m.pass(time.Duration(m.r.IntN(100)) * time.Second)
		if m.r.IntN(4) == 0 {
			m.now += 3600
		}
	case 9:
		m.publish()
	case 10:
		if t := m.disk.Trial; t.Pending() && t.Ends != 0 && t.Boot == fmt.Sprint(m.boot) && !m.contents[t.Generation.Overlay].cut {
			g := t.Generation
			unread := m.unread(g)
			if err = m.save(func(s *state.State) { s.Trial.Generation.Unread = unread; s.Confirm() }); err == nil {
				m.proved = append(m.proved, g.Overlay)
			}
		}
		m.paused, m.held = m.r.IntN(8) == 0, m.r.IntN(8) == 0
		// One that answers again between a boot that fails and the comparison cannot be told from
		// one that never failed; the loader in between tells of most.
		m.outage = m.outage && m.disk.Doubted != nil || m.r.IntN(4) == 0
	case 11:
		m.start()
	}
	m.log = append(m.log, entry{err: err, effect: m.effect})
	if errors.Is(err, errCut) && m.r.IntN(2) == 0 {
		m.start()
	}
}

// pass lets time go by.
func (m *model) pass(d time.Duration) { m.up, m.now = m.up+d, m.now+int64(d/time.Second) }

func (m *model) publish() {
	n := uint64(len(m.contents))
	if m.offered == nil || m.r.IntN(4) > 0 { // else another number of the same content
		c := content{layer: "a", cuts: m.r.IntN(3) == 0, fails: m.r.IntN(8) == 0, busy: m.r.IntN(8) == 0, gated: m.r.IntN(2) == 0, sick: m.r.IntN(3) == 0, asks: m.r.IntN(6) == 0}
		c.cut, c.reads = c.cuts && m.r.IntN(2) == 0, m.r.IntN(3) == 0
		c.shut = c.reads && m.r.IntN(2) == 0
		if !m.attached && m.r.IntN(3) == 0 {
			c.layer, c.dead = "b", m.r.IntN(4) == 0
		}
		if len(m.contents) == 0 { // a site begins with something that is well
			c = content{layer: "a"}
		}
		c.gated = c.gated || c.sick
		m.contents[fmt.Sprint(n)] = c
		m.offered = &state.Generation{Overlay: fmt.Sprint(n), Layer: c.layer, Generation: 1}
		if n > 0 {
			m.offered.Generation = m.disk.Floor.Generation + 1
		}
		return
	}
	m.offered.Generation++
}

// wellAgain ends all faults, and lets time go by.
func (m *model) wellAgain() {
	m.paused, m.held, m.outage, m.offered = false, false, m.disk.Doubted != nil && m.outage, nil // nobody publishes, nobody answers
	m.log = append(m.log, entry{step: "well again: "})
	for range 12 {
		m.fault = 0
		m.pass(time.Minute)
		for _, step := range []func() error{m.look, m.ask, m.judge} {
			if err := step(); err != nil {
				m.fail("an error without a fault: " + err.Error())
			}
		}
	}
	g := m.runs()
	switch c := m.contents[m.effect]; {
	case len(m.proved) == 0:
		return // there is nothing better than what there is
	case g == nil:
		m.fail("nothing runs, though something proved itself")
	case m.effect != g.Overlay:
		m.fail(fmt.Sprintf("the machine is as %q, and the node takes it for %q", m.effect, g.Overlay))
	case m.disk.Trial.Pending():
		m.fail("a trial never ends")
	case m.disk.Tells(g):
		m.fail("what is doubted is never compared")
	case !m.wasProved(m.effect):
		m.fail(fmt.Sprintf("it ended on %q, which never proved itself: %+v", m.effect, c))
	case c.cut && !m.partial && !m.untested[m.effect], c.sick && !c.asks: // who confirms it vouches for its checks
		m.fail(fmt.Sprintf("what proved itself is ill: %+v", c))
	case c.shut && !c.asks && m.read == m.effect && m.heard && m.disk.Back(*g) != nil:
		m.fail(fmt.Sprintf("it ended on what cut it off: %+v; current %+v, staged %+v, back %+v", c, m.disk.Current, m.disk.Staged, m.disk.Back(*g)))
	}
}

// unplayed are the events that the model has no place for, and why. TestAnyFacts meets their rows,
// and those that say so themselves; real nodes do.
var unplayed = map[Event]string{Swap: "its machine is started over by people and faults alone"}

// TestWhateverFails plays nodes of which any call fails or is cut, with publishers that
// publish what is broken: each ends on something that proved itself there, within twelve
// looks, and never does two disruptive acts at once.
func TestWhateverFails(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // half of its time is collecting
	histories := 20_000
	if testing.Short() {
		histories = 2_000
	}
	decisions, met := 0, map[string]bool{}
	for seed := range uint64(histories) {
		m := &model{r: rand.New(rand.NewPCG(seed, 7)), contents: map[string]content{}, untested: map[string]bool{}}
		m.attached = m.r.IntN(4) == 0
		m.disk.Tracking = "following"
		m.publish()
		m.start()
		func() {
			defer func() {
				if why := recover(); why != nil {
					t.Fatalf("history %d: %v", seed, why)
				}
			}()
			for range 40 {
				m.event()
			}
			m.wellAgain()
		}()
		decisions += len(m.log)
		for _, e := range m.log {
			met[e.step] = true
		}
	}
	for _, row := range Table {
		if why := cmp.Or(row.unplayed, unplayed[row.On]); met[row.Name] == (why != "") {
			t.Errorf("%s: a history meets it: %v; why none does: %q", row.Name, met[row.Name], why)
		}
	}
	t.Logf("%d decisions in %d histories", decisions, histories)
}
