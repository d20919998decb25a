// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fleet is a machine without a machine: generations in which a fault is planted.
type fleet struct {
	bad     int               // the first generation that fails
	parts   []string          // in which it differs from the one before
	needed  []string          // of these, which break it together
	broken  map[int]bool      // generations that cannot be tried
	refused map[string]int    // parts that apt refuses to mix: both of a number or none
	flaps   map[string]int    // the try of a question that has another outcome
	late    map[string]int    // the try of a question that gives none
	behind  map[string]string // a part that cannot be mixed without another
	cut     int               // ends with errCut at this try
	boots   int
	asked   map[string]int
}

var errCut = errors.New("cut off")

func (f *fleet) try(question string, a Answer) (Answer, error) {
	f.boots++
	f.asked[question]++
	if f.boots == f.cut {
		return Answer{}, errCut
	}
	if f.late[question] == f.asked[question] {
		return Answer{Skip, "the gates are late"}, nil
	}
	if f.flaps[question] == f.asked[question] && a.Outcome != Skip {
		a.Outcome = map[Outcome]Outcome{Good: Bad, Bad: Good}[a.Outcome]
	}
	return a, nil
}

func (f *fleet) Generation(_ context.Context, i int) (Answer, error) {
	a := Answer{Outcome: Good}
	switch {
	case f.broken[i]:
		a = Answer{Skip, "it does not boot"}
	case i >= f.bad:
		a = Answer{Bad, "check ended with 1"}
	}
	return f.try(strconv.Itoa(i), a)
}

func (f *fleet) Parts(_ context.Context, good, bad int) ([]string, error) {
	if good >= f.bad || bad < f.bad {
		return nil, fmt.Errorf("asked for the parts between %d and %d", good, bad)
	}
	return f.parts, nil
}

func (f *fleet) Mix(_ context.Context, _, _ int, parts []string) (Answer, error) {
	a := Answer{Outcome: Good}
	for p, other := range f.behind {
		if slices.Contains(parts, p) && !slices.Contains(parts, other) {
			return f.try(strings.Join(parts, ","), Answer{Skip, "apt refuses it"})
		}
	}
	taken := map[int]int{}
	for p, n := range f.refused {
		if slices.Contains(parts, p) {
			taken[n]++
		}
	}
	for n, some := range taken {
		all := 0
		for _, m := range f.refused {
			if m == n {
				all++
			}
		}
		if some < all {
			return f.try(strings.Join(parts, ","), Answer{Skip, "apt refuses it"})
		}
	}
	if !slices.ContainsFunc(f.needed, func(p string) bool { return !slices.Contains(parts, p) }) {
		a = Answer{Bad, "check ended with 1"}
	}
	return f.try(strings.Join(parts, ","), a)
}

func search(f *fleet, known map[string]Answer) *Search {
	f.asked, f.boots = map[string]int{}, 0
	return &Search{Machine: f, Known: known, Save: func() error { return nil }, Say: func(Step) {}, Name: strconv.Itoa}
}

// draw plants a fault blind: of one part, or of several that are each needed.
func draw(r *rand.Rand, generations int) *fleet {
	f := &fleet{bad: 1 + r.IntN(generations-1), broken: map[int]bool{}, refused: map[string]int{}, flaps: map[string]int{}}
	for i, kind := range []string{"kernel", "package", "package", "package", "account", "argument", "sysctl", "file", "unit", "script"} {
		if r.IntN(4) > 0 {
			f.parts = append(f.parts, fmt.Sprintf("%s/%d", kind, i))
		}
	}
	if len(f.parts) == 0 {
		f.parts = []string{"sysctl/only"}
	}
	for range 1 + r.IntN(min(3, len(f.parts))) {
		if p := f.parts[r.IntN(len(f.parts))]; !slices.Contains(f.needed, p) {
			f.needed = append(f.needed, p)
		}
	}
	slices.SortFunc(f.needed, func(a, b string) int { return slices.Index(f.parts, a) - slices.Index(f.parts, b) })
	return f
}

// TestPlanted: whatever was planted is found in 30 generations, by at most log2(n)+2 boots to the
// generation, which is asked for once more.
func TestPlanted(t *testing.T) {
	const n = 30
	for seed := range uint64(2000) {
		f := draw(rand.New(rand.NewPCG(seed, 1)), n)
		boots, mixes := 0, 0
		s := search(f, map[string]Answer{})
		s.Say = func(step Step) {
			if strings.HasPrefix(step.What, "generation") && !strings.HasSuffix(step.What, " again") {
				boots++
			} else if !strings.HasPrefix(step.What, "generation") {
				mixes++
			}
		}
		got, err := s.Run(t.Context(), 0, n-1)
		if err != nil {
			t.Fatalf("%d: %v", seed, err)
		}
		if got.Good != f.bad-1 || got.Bad != f.bad || len(got.Skipped) > 0 || !slices.Equal(got.Parts, f.needed) || got.Why != "check ended with 1" {
			t.Errorf("%d: found %+v, planted %+v", seed, got, f)
		}
		if boots > Tries(n) || Tries(n) > 7 {
			t.Errorf("%d: %d boots to find the generation", seed, boots)
		}
		if mixes > 5*len(f.needed)+1 {
			t.Errorf("%d: %d boots to find %d of %d parts", seed, mixes, len(f.needed), len(f.parts))
		}
	}
}

// TestSkipped: what cannot be tried is passed by, and is between the two that are found if nothing
// else says on which side of the fault it is. Parts that cannot be mixed are found together.
func TestSkipped(t *testing.T) {
	const n = 30
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		f := draw(r, n)
		for range r.IntN(12) {
			f.broken[1+r.IntN(n-2)] = true
		}
		f.needed = f.needed[:1]
		if len(f.parts) > 1 {
			i := r.IntN(len(f.parts) - 1)
			f.refused[f.parts[i]], f.refused[f.parts[i+1]] = 1, 1
		}
		got, err := search(f, map[string]Answer{}).Run(t.Context(), 0, n-1)
		if err != nil {
			t.Fatalf("%d: %v", seed, err)
		}
		if got.Good >= f.bad || got.Bad < f.bad || len(got.Skipped) != got.Bad-got.Good-1 || slices.ContainsFunc(got.Skipped, func(i int) bool { return !f.broken[i] }) {
			t.Errorf("%d: found %+v, planted %+v", seed, got, f)
		}
		most := 1 + f.refused[f.needed[0]]
		if !slices.Contains(got.Parts, f.needed[0]) || len(got.Parts) > most {
			t.Errorf("%d: parts %q, planted %+v", seed, got.Parts, f)
		}
	}
}

// TestNeededBehind: parts that cannot be mixed without one another, in whatever order they come, hide no other one.
func TestNeededBehind(t *testing.T) {
	parts := []string{"accounts", "bc", "pv", "readline"}
	for what, behind := range map[string]map[string]string{
		"behind":     {"bc": "readline"},
		"before":     {"readline": "bc"},
		"each other": {"bc": "readline", "readline": "bc"},
		"in a row":   {"accounts": "bc", "bc": "readline"},
		"two pairs":  {"bc": "readline", "readline": "bc", "accounts": "pv", "pv": "accounts"},
	} {
		for _, needed := range parts {
			f := &fleet{bad: 1, parts: parts, needed: []string{needed}, behind: behind}
			want := []string{}
			for p := needed; p != "" && !slices.Contains(want, p); p = behind[p] {
				want = append(want, p)
			}
			slices.Sort(want)
			if got, err := search(f, map[string]Answer{}).Run(t.Context(), 0, 1); err != nil || !slices.Equal(got.Parts, want) {
				t.Errorf("%s, %s: %+v, %v", what, needed, got, err)
			}
		}
	}
}

// TestInterrupted: a search that is cut off at any try goes on where it was.
func TestInterrupted(t *testing.T) {
	const n = 30
	for seed := range uint64(30) {
		whole := draw(rand.New(rand.NewPCG(seed, 3)), n)
		want, err := search(whole, map[string]Answer{}).Run(t.Context(), 0, n-1)
		if err != nil {
			t.Fatal(err)
		}
		all := whole.boots
		for cut := 1; cut <= all; cut++ {
			f := draw(rand.New(rand.NewPCG(seed, 3)), n)
			known := map[string]Answer{}
			f.cut = cut
			if _, err := search(f, known).Run(t.Context(), 0, n-1); !errors.Is(err, errCut) {
				t.Fatalf("%d, cut at %d: %v", seed, cut, err)
			}
			f.cut = 0
			got, err := search(f, known).Run(t.Context(), 0, n-1)
			if err != nil || !slices.Equal(got.Parts, want.Parts) || got.Bad != want.Bad || f.boots != all-cut+1 {
				t.Fatalf("%d, cut at %d: %+v by %d boots of %d, %v", seed, cut, got, f.boots, all, err)
			}
		}
	}
}

// TestFlaps: a check that does not say the same twice of one of the two is seen.
func TestFlaps(t *testing.T) {
	for _, question := range []int{-1, 0} { // the good one, the bad one
		f := draw(rand.New(rand.NewPCG(7, 4)), 30)
		f.flaps[strconv.Itoa(f.bad+question)] = 2
		_, err := search(f, map[string]Answer{}).Run(t.Context(), 0, 29)
		if !errors.Is(err, ErrFlaps) || !strings.Contains(err.Error(), strconv.Itoa(f.bad+question)) {
			t.Errorf("%d: %v", question, err)
		}
	}
	f := draw(rand.New(rand.NewPCG(7, 4)), 30)
	question := strings.Join(f.needed, ",")
	f.flaps[question] = 2
	if _, err := search(f, map[string]Answer{}).Run(t.Context(), 0, 29); !errors.Is(err, ErrFlaps) || f.asked[question] != 2 {
		t.Errorf("of the parts %s, which were tried %d times: %v", question, f.asked[question], err)
	}
}

// TestLeft: after each step it is said how many may still be it, as a count of what no answer so far rules out.
func TestLeft(t *testing.T) {
	const n = 30
	for seed := range uint64(50) {
		f := draw(rand.New(rand.NewPCG(seed, 9)), n)
		s := search(f, map[string]Answer{})
		low, high, parts := 0, n-1, []int{}
		s.Say = func(step Step) {
			number, is := strings.CutPrefix(step.What, "generation ")
			if !is {
				parts = append(parts, step.Left)
				return
			}
			i, err := strconv.Atoi(strings.TrimSuffix(number, " again"))
			if err != nil {
				t.Fatal(err)
			}
			if step.Answer.Outcome == Good {
				low = i
			} else {
				high = i
			}
			if step.Left != high-low {
				t.Errorf("%d: after %+v %d are left", seed, step, high-low)
			}
		}
		if _, err := s.Run(t.Context(), 0, n-1); err != nil {
			t.Fatal(err)
		}
		if high-low != 1 {
			t.Errorf("%d: %d are left in the end", seed, high-low)
		}
		if len(f.needed) == 1 && !slices.IsSortedFunc(parts, func(a, b int) int { return b - a }) || len(parts) > 0 && parts[len(parts)-1] != 0 {
			t.Errorf("%d: of %d parts %v are left", seed, len(f.parts), parts)
		}
	}
}

// TestUnconfirmed: a try that gives no answer the second time says nothing of the check. What was answered stays, and
// the next run asks that one again.
func TestUnconfirmed(t *testing.T) {
	for _, question := range []int{-1, 0} {
		f := draw(rand.New(rand.NewPCG(7, 4)), 30)
		f.late = map[string]int{strconv.Itoa(f.bad + question): 2}
		known := map[string]Answer{}
		s := search(f, known)
		_, err := s.Run(t.Context(), 0, 29)
		if !errors.Is(err, ErrUnconfirmed) || errors.Is(err, ErrFlaps) || !strings.Contains(err.Error(), strconv.Itoa(f.bad+question)) {
			t.Fatalf("%d: %v", question, err)
		}
		before := f.boots
		if got, err := s.Run(t.Context(), 0, 29); err != nil || got.Bad != f.bad || !slices.Equal(got.Parts, f.needed) || f.asked[strconv.Itoa(f.bad+question)] != 3 {
			t.Errorf("%d: %+v, %v after %d boots and %d", question, got, err, before, f.boots-before)
		}
	}
}

// TestEnds: a good end that fails, a bad one that passes and one that cannot be tried end the search.
func TestEnds(t *testing.T) {
	for what, change := range map[string]func(*fleet){
		"good": func(f *fleet) { f.bad = 0 }, "bad": func(f *fleet) { f.bad = 30 }, "boot": func(f *fleet) { f.broken[29] = true },
	} {
		f := draw(rand.New(rand.NewPCG(1, 5)), 30)
		change(f)
		if _, err := search(f, map[string]Answer{}).Run(t.Context(), 0, 29); !errors.Is(err, ErrNoEnds) || f.boots > 2 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMost: a run makes as many tries as it may, and the next one goes on.
func TestMost(t *testing.T) {
	f := draw(rand.New(rand.NewPCG(9, 6)), 30)
	known := map[string]Answer{}
	for run := 1; ; run++ {
		s := search(f, known)
		s.Most = 3
		got, err := s.Run(t.Context(), 0, 29)
		if f.boots > 3 || err != nil && !errors.Is(err, ErrMost) || run > 20 {
			t.Fatalf("run %d: %d boots, %v", run, f.boots, err)
		}
		if err == nil {
			if got.Bad != f.bad {
				t.Errorf("%+v", got)
			}
			break
		}
	}
	if _, err := search(f, map[string]Answer{}).Run(cancelled(t), 0, 29); !errors.Is(err, context.Canceled) || f.boots > 0 {
		t.Errorf("%v", err)
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
