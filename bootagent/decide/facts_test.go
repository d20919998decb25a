// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
)

// anyGeneration is one of few, so that two are often the same.
func anyGeneration(r *rand.Rand) state.Generation {
	g := state.Generation{Overlay: string(rune('p' + r.IntN(3))), Layer: string(rune('a' + r.IntN(2))), Generation: uint64(1 + r.IntN(3)), Attempts: r.IntN(state.MaxAttempts + 1)}
	if r.IntN(4) == 0 {
		g.Failed, g.Again = "it failed", int64(r.IntN(2)*50)
	}
	if r.IntN(6) == 0 {
		g.Waits = "c"
	}
	if r.IntN(6) == 0 {
		g.FailedAhead = "it failed ahead"
	}
	return g
}

func perhaps(r *rand.Rand) *state.Generation {
	if r.IntN(3) == 0 {
		return nil
	}
	g := anyGeneration(r)
	return &g
}

// anyFacts are facts of which most combinations never happen.
func anyFacts(r *rand.Rand) *Facts {
	f := new(Facts)
	fill(r, reflect.ValueOf(f).Elem())
	return f
}

// fill gives each field any value: one of its constants where its type has some.
func fill(r *rand.Rand, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *Event:
		*p = one(r, events...)
	case *Phase:
		*p = one(r, Changing, Confirming, Prepared, Nothing, Entering, Soaking, Stuck, Partial, Waiting, Idle)
	case *state.Confirm:
		*p = one(r, "", state.ByReach, state.ByOperator)
	case *state.Generation:
		*p = anyGeneration(r)
	case **state.Generation:
		*p = perhaps(r)
	case **record.Without:
		if g := perhaps(r); g != nil {
			*p = &record.Without{Overlay: g.Overlay, Generation: g.Generation}
		}
	case *bool:
		*p = r.IntN(2) == 0
	case *string:
		*p = one(r, "", "text")
	case *int:
		*p = r.IntN(4)
	case *int64:
		*p = r.Int64N(100)
	case *time.Duration:
		*p = time.Duration(r.IntN(100)) * time.Second
	default:
		for i := range v.NumField() { // of a struct: any other type needs a case
			fill(r, v.Field(i))
		}
	}
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// A loader reads no byte from a registry while anything that ran well is whole on the disk, and
// leaves nothing untried.
func TestWaysBack(t *testing.T) {
	for n := range 4 {
		whole := WaysBack(n, false)
		if all := WaysBack(n, true); len(whole) != n || len(all) != 2*n || !slices.Equal(all[:n], whole) {
			t.Fatalf("%d generations: %+v, and %+v with a registry", n, whole, all)
		}
		for i, way := range WaysBack(n, true) {
			if way.At != i%n || way.Fetch != (i >= n) {
				t.Errorf("%d generations: way %d is %+v", n, i, way)
			}
		}
	}
}

// whilePaused are the acts that change no setting, or take one back: a paused node does no other that
// changes anything.
var whilePaused = []Act{PutBack, NoteNumber, Rest, Prove}

// TestAnyFacts asks about two million combinations of facts, most of which no node meets.
func TestAnyFacts(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // half of its time is collecting
	r := rand.New(rand.NewPCG(1, 2))
	met := map[string]int{}
	for range 2_000_000 {
		f := anyFacts(r)
		s := Next(f)
		met[s.Name]++
		pending := f.Run.Phase == Changing || f.Run.Phase == Confirming || f.Run.Phase == Prepared
		wrong := ""
		switch {
		case Table[slices.IndexFunc(Table, func(r Row) bool { return r.Name == s.Name })].On != f.Event:
			wrong = "a row of another event"
		case f.Event == Begin && f.Run.Phase == Changing && s.Act != PutBack && s.Act != Forget:
			wrong = "a change that nobody sees to goes on"
		case f.Event == Early && (f.Begun || pending) && (s.Act == Set || s.Act == SetOnTrial):
			wrong = "two write at once, or beside a trial"
		case f.Event == Early && f.Run.Phase == Entering && f.Prior.Cuts != "" && s.Act == Set, s.Act == SetOnTrial && !f.Prior.Heard:
			wrong = "what can cut the node off is set before services start, and no trial shows it"
		case s.Act == ApplyUntested && f.Run.Phase == Prepared:
			wrong = "what was set before services started is not taken back where it may have cut the node off"
		case f.Event == Begin && s.Act == Forget && (!f.Run.Early || f.Run.Boot == f.Boot):
			wrong = "what an agent has begun is forgotten"
		case f.Event == Begin && pending && f.Run.Boot != f.Boot && s.Act != PutBack && s.Act != Forget:
			wrong = "a change outlives its boot"
		case f.Event == Begin && pending && f.Run.Phase != Prepared && f.Run.Left(f.Up) <= 0 && s.Act != PutBack && s.Act != Forget:
			wrong = "a change outlives its time"
		case f.Paused != "" && slices.Contains([]Event{Look, Answer, Judged}, f.Event) && (s.Act == Keep || s.Act.Changes() && !slices.Contains(whilePaused, s.Act)):
			wrong = "a paused node is changed"
		case f.Event == Answer && f.Offer.Held && (s.Act == Change || s.Act == PutBack || s.Act == Rest || s.Act == NoteNumber):
			wrong = "a held node moves"
		case f.Event == Answer && f.waits() && s.Act == Change && !f.Run.To.Same(f.Offer.Generation):
			wrong = "two changes at once"
		case f.Event == Answer && s.Act == Change && (f.Offer.Failed || f.Runs != nil && Refused(f.Offer.Generation, f.Offer.Attempts, f.Now) != ""):
			wrong = "what failed is tried again"
		case f.Event == Answer && s.Act == Change && f.Runs != nil && !f.Attached && !f.Offer.Live:
			wrong = "a running root is changed as only a boot can"
		case f.Event == Made && f.Result.Failed && (s.Act == Settle || s.Act == AwaitOperator || s.Act == Probe):
			wrong = "what failed is in effect"
		case f.Event == Made && s.Act == Settle && f.Result.Trial != "":
			wrong = "what is on trial is in effect"
		case f.Ended && s.Act == RejectChange, f.Ended && s.Act == UndoForGood:
			wrong = "the end of the agent is held against a change"
		case f.Event == Try && f.Try.Cuts != "" && f.Try.Unreached == "" && s.Act == MakeWithoutTrial:
			wrong = "what can cut the node off is not on trial"
		case f.Event == Effect && s.Act == Prove && f.Proof.Applied && f.Proof.Gates:
			wrong = "what has checks proved itself without them"
		case f.Event == Judged && !f.Gates.Failed && (s.Act == BackLive || s.Act == BackBoot || s.Act == KeepLooking):
			wrong = "what did not fail is left"
		case f.Event == Judged && s.Act == BackBoot && (f.Attached || !f.Gates.Good || !f.Remembers && !f.Gates.Soft):
			wrong = "a boot that leads to the same"
		case f.Event == Judged && s.Act == BackLive && f.Gates.CutOff && !f.Attached:
			wrong = "what a boot has read is put back without one"
		case s.Act == Convict && (f.Reach != "" || f.Outage || f.Ended):
			wrong = "what may be well stays rejected"
		case f.Event == Begin && s.Act == Compare && (pending || !f.Begun || !f.Doubt):
			wrong = "a comparison with what is not as it was before"
		case f.Event == Judged && s.Act == BackLive && (!f.Gates.Good || !f.Attached && !(f.Gates.SameLayer && f.Gates.Live)):
			wrong = "a way back that does not lead there"
		case f.Event == Judged && f.Gates.Failed && !f.Gates.Passed && f.Gates.Good && f.Remembers && f.Paused == "" && s.Act == KeepLooking:
			wrong = "nothing is done about what failed"
		case f.Event == Swap && s.Act == SetOut && (pending || f.Run.Phase == Soaking):
			wrong = "a machine is started over while something has to prove itself"
		case f.Event == Swap && s.Act != NeverReboot && (f.Awaits.Uncounted || f.Awaits.Forgotten):
			wrong = "a machine is started over again and again"
		case f.Event == Boot && s.Act == Enter && (f.Offer.Held || f.Offer.Generation.Failed != "" && f.Offer.Generation.Again == 0):
			wrong = "a loader enters what it must not"
		case f.Event == Boot && s.Act == Enter && f.Offer.Failed:
			wrong = "a loader enters what it was not given"
		case f.Event == Fetched && s.Act == Enter && f.Fetch.Why != "":
			wrong = "a loader enters what is not here"
		case s.Act == AskMedium && (f.Event == Boot && f.Offer.Medium || f.Event == Fetched && f.Fetch.Medium):
			wrong = "a medium is asked for a medium"
		case f.Event == Sought && f.Back.Found != (s.Act == Enter):
			wrong = "what ran well before is not entered, or what did not"
		}
		if wrong != "" {
			t.Fatalf("%s: %s by %s: %+v", f.Event, wrong, s.Name, *f)
		}
	}
	for _, row := range Table {
		if met[row.Name] == 0 {
			t.Errorf("%s was never met", row.Name)
		}
	}
}
