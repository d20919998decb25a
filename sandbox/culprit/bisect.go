// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Outcome is the result of one try.
type Outcome string

// Outcomes of a try.
const (
	Good Outcome = "good" // the check passed
	Bad  Outcome = "bad"  // it did not
	Skip Outcome = "skip" // it cannot be tried
)

// Answer is the outcome of one try.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"` // it is not good
}

// Machine boots what it is asked for and runs the checks. Its errors end the search: what
// cannot be built or does not boot is an Answer.
type Machine interface {
	Generation(ctx context.Context, i int) (Answer, error) // the oldest is 0
	// in which the two differ: in an order in which each has what it needs before it
	Parts(ctx context.Context, good, bad int) ([]string, error)
	Mix(ctx context.Context, good, bad int, parts []string) (Answer, error)
}

// Step is told after each try that was made.
type Step struct {
	What   string // "generation 3", or the parts that were taken from the bad one
	Answer Answer
	Left   int // generations or parts that may still be it
}

// Search holds a search. Name is for messages.
//
// It finds first between which two of many generations of a node a check broke, then which parts of
// what lies between these two. What was answered is in Known, and is not asked again, so a search that
// was interrupted goes on where it was by being run once more.
type Search struct {
	Machine Machine
	Known   map[string]Answer  // by question; Save writes it down
	Save    func() error       // after each answer
	Say     func(Step)         // after each answer
	Name    func(i int) string // of a generation
	Most    int                // tries of this run; 0 is without a bound

	tries int
}

// Found is the smallest change that was found.
type Found struct {
	Good    int      // the generation before, which passes
	Bad     int      // the generation that does not
	Skipped []int    // between the two, which could not be tried
	Parts   []string // that break it together; more than one where each is needed, or where they could not be tried apart
	Why     string   // what failed
}

// Errors of a search besides those of its machine.
var (
	ErrFlaps       = errors.New("the check flaps")
	ErrUnconfirmed = errors.New("what was found could not be tried again")
	ErrNoEnds      = errors.New("the ends are not as they were said to be")
	ErrMost        = errors.New("this run has booted as many machines as it may")
)

// question is one try.
type question struct {
	key, what string
	left      map[Outcome]int // how many generations, or parts, may still be it after that
	try       func() (Answer, error)
}

// halves are what is left where an answer says on which side of at the fault is.
func halves(low, at, high int) map[Outcome]int {
	return map[Outcome]int{Good: high - at, Bad: at - low, Skip: high - low}
}

// Run searches from generation good to generation bad.
func (s *Search) Run(ctx context.Context, good, bad int) (*Found, error) {
	for _, end := range []struct {
		i    int
		want Outcome
	}{{good, Good}, {bad, Bad}} {
		a, err := s.ask(ctx, s.generation(ctx, good, end.i, bad))
		if err != nil {
			return nil, err
		}
		if a.Outcome != end.want {
			return nil, fmt.Errorf("%w: generation %s is not %s, it is %s", ErrNoEnds, s.Name(end.i), end.want, a)
		}
	}
	f := &Found{Good: good, Bad: bad}
	if err := s.generations(ctx, f); err != nil {
		return nil, err
	}
	for _, i := range []int{f.Good, f.Bad} { // once more, since all that follows rests on them
		again, err := s.confirm(ctx, s.generation(ctx, f.Good, i, f.Bad))
		if err != nil {
			return nil, err
		}
		f.Why = again.Why
	}
	parts, err := s.Machine.Parts(ctx, f.Good, f.Bad)
	if err != nil {
		return nil, err
	}
	if f.Parts, err = s.parts(ctx, f, parts); err == nil && len(f.Parts) < len(parts) {
		_, err = s.confirm(ctx, s.mix(ctx, f, f.Parts, nil))
	}
	return f, err
}

func (a Answer) String() string {
	if a.Why == "" {
		return string(a.Outcome)
	}
	return string(a.Outcome) + " (" + a.Why + ")"
}

// generations narrows f down. What cannot be tried is passed by, to the next one that can.
func (s *Search) generations(ctx context.Context, f *Found) (err error) {
	f.Good, f.Bad, err = narrow(f.Good, f.Bad, func(low, i, high int) (Answer, error) { return s.ask(ctx, s.generation(ctx, low, i, high)) })
	if err != nil {
		return err
	}
	for i := f.Good + 1; i < f.Bad; i++ {
		f.Skipped = append(f.Skipped, i)
	}
	return nil
}

// narrow asks what is between two, of which the low one is good and the high one bad, until nothing is left to ask.
func narrow(low, high int, ask func(low, i, high int) (Answer, error)) (good, bad int, err error) {
	skipped := map[int]bool{}
	for {
		i, ok := middle(low, high, skipped)
		if !ok {
			return low, high, nil
		}
		a, err := ask(low, i, high)
		if err != nil {
			return low, high, err
		}
		switch a.Outcome {
		case Good:
			low = i
		case Bad:
			high = i
		default:
			skipped[i] = true
		}
	}
}

// middle returns what is nearest to the middle of two that is between them and not skipped.
func middle(low, high int, skipped map[int]bool) (int, bool) {
	mid := low + (high-low)/2
	for d := range high - low {
		for _, i := range []int{mid - d, mid + d} {
			if i > low && i < high && !skipped[i] {
				return i, true
			}
		}
	}
	return 0, false
}

// parts returns the fewest parts that were found to break what is good. It looks for the last
// part that is needed: with the parts before it the check fails, without it it passes. What
// comes after that one is not needed. Then it looks for the last that is needed before it,
// until those that were found fail alone.
func (s *Search) parts(ctx context.Context, f *Found, all []string) ([]string, error) {
	needed := []string{}
	for rest := all; len(rest) > 0; {
		if len(needed) > 0 {
			a, err := s.ask(ctx, s.mix(ctx, f, needed, halves(0, 0, len(rest))))
			if err != nil {
				return nil, err
			}
			if a.Outcome == Bad {
				break
			}
		}
		low, high, err := narrow(0, len(rest), func(low, i, high int) (Answer, error) { // without parts it passes, with all of them it fails
			return s.ask(ctx, s.mix(ctx, f, append(slices.Clone(rest[:i]), needed...), halves(low, i, high)))
		})
		if err != nil {
			return nil, err
		}
		last, err := s.without(ctx, f, rest[:low], rest[low:high], needed)
		if err != nil {
			return nil, err
		}
		needed = append(last, needed...)
		rest = rest[:low]
	}
	return needed, nil
}

// without returns what is left of parts that were not tried apart, since what one needs may come
// behind it: each is left out in turn, and then any two that cannot be left out alone, as two that
// need each other. The check fails with what is left, between before and after.
func (s *Search) without(ctx context.Context, f *Found, before, parts, after []string) ([]string, error) {
	left, stuck := slices.Clone(parts), []string{}
	out := func(some ...string) (Answer, error) {
		rest := slices.DeleteFunc(slices.Clone(left), func(p string) bool { return slices.Contains(some, p) })
		n := len(left)
		if len(rest) == 0 || len(rest) == n {
			return Answer{}, nil // without any it passes
		}
		a, err := s.ask(ctx, s.mix(ctx, f, slices.Concat(before, rest, after), map[Outcome]int{Good: n, Bad: len(rest), Skip: n}))
		if err == nil && a.Outcome == Bad {
			left = rest
		}
		return a, err
	}
	for _, p := range slices.Backward(parts) {
		a, err := out(p)
		if err != nil {
			return nil, err
		}
		if a.Outcome == Skip {
			stuck = append(stuck, p)
		}
	}
	for i, p := range stuck {
		for _, q := range stuck[i:] { // p alone first, which costs no try where nothing was left out since
			if _, err := out(p, q); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

func (s *Search) generation(ctx context.Context, good, i, bad int) question {
	what := "generation " + s.Name(i)
	return question{what, what, halves(good, i, bad), func() (Answer, error) { return s.Machine.Generation(ctx, i) }}
}

func (s *Search) mix(ctx context.Context, f *Found, parts []string, left map[Outcome]int) question {
	key := "between " + s.Name(f.Good) + " and " + s.Name(f.Bad) + ": " + strings.Join(parts, "\n")
	what := fmt.Sprintf("%d of the parts that differ", len(parts))
	if len(parts) == 1 {
		what = parts[0] + " alone"
	}
	return question{key, what, left, func() (Answer, error) { return s.Machine.Mix(ctx, f.Good, f.Bad, parts) }}
}

// confirm tries once more what was answered, since all that is said rests on it.
func (s *Search) confirm(ctx context.Context, q question) (Answer, error) {
	first, err := s.ask(ctx, q)
	if err != nil {
		return first, err
	}
	what := q.what
	q.key, q.what = q.key+" again", what+" again"
	if s.Known[q.key].Outcome == Skip {
		delete(s.Known, q.key) // of an earlier run, which ended with that
	}
	again, err := s.ask(ctx, q)
	switch {
	case err != nil:
		return again, err
	case again.Outcome == Skip:
		return again, fmt.Errorf("%w: %s is %s, and then %s", ErrUnconfirmed, what, first, again)
	case again.Outcome != first.Outcome:
		return again, fmt.Errorf("%w: %s is %s, and then %s", ErrFlaps, what, first, again)
	}
	return again, nil
}

// ask answers a question, by what is known or by a try.
func (s *Search) ask(ctx context.Context, q question) (Answer, error) {
	a, known := s.Known[q.key]
	if known {
		return a, nil
	}
	if err := ctx.Err(); err != nil {
		return a, err
	}
	if s.tries++; s.Most > 0 && s.tries > s.Most {
		return a, fmt.Errorf("%w: %d", ErrMost, s.Most)
	}
	a, err := q.try()
	if err != nil {
		return a, fmt.Errorf("try %s: %w", q.what, err)
	}
	s.Known[q.key] = a
	if err := s.Save(); err != nil {
		return a, err
	}
	s.Say(Step{q.what, a, q.left[a.Outcome]})
	return a, nil
}

// Tries returns how many tries of n generations find the one that broke, where none is skipped:
// the two ends, and each halves what is left.
func Tries(n int) int { return 2 + bits.Len(uint(max(0, n-2))) }
