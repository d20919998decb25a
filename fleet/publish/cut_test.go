// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/fleettest"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// cutPublish is a fleet of three nodes, with the value 10 or with none, of which a publish
// of 20 was cut at a request: at odd ones the registry is away from then on, at even ones
// the publisher is killed. Without an error it came through.
func cutPublish(t *testing.T, l *fleettest.Line, prefix string, isFirst bool, request int) (*fleet, error) {
	f := newFleet(t)
	var err error
	f.Registry, err = registry.Open(l.At+prefix, registry.Options{PlainHTTP: true})
	must(t, err)
	f.Trust, f.NewFleet = &f.Policy, true
	f.Later(l)
	if !isFirst {
		must(t, f.Gives(t.Context(), "10", Options{}))
		f.NewFleet = false
	}
	f.Later(l)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	if request%2 == 1 {
		kill = func() {} // it lives
	}
	mend := l.CutAt(request, kill)
	err = f.Gives(ctx, "20", Options{})
	must(t, mend())
	return f, err
}

// TestCutSomewhere cuts a publish, and then does something else. That ends it, puts back
// what it had moved, or refuses and says what does; and the same publish ends it in any case.
func TestCutSomewhere(t *testing.T) {
	require.Slow(t)
	everywhere(t, 9)
}

// The same at every request.
func TestLongCutEverywhere(t *testing.T) {
	require.Long(t)
	everywhere(t, 1)
}

func everywhere(t *testing.T, more int) {
	n2 := Options{Only: func(name string) bool { return name == "n2" }}
	server := registrytest.WithReferrers(t)
	for i, c := range []struct {
		name string
		do   func(ctx context.Context, f *fleet) error
		want string // where the publish of 20 was not through
	}{
		{"the same", func(ctx context.Context, f *fleet) error { return f.Gives(ctx, "20", Options{}) }, "20 20 20"},
		{"another", func(ctx context.Context, f *fleet) error { return f.Gives(ctx, "30", Options{}) }, "30 30 30"},
		{"of one node", func(ctx context.Context, f *fleet) error { return f.Gives(ctx, "30", n2) }, "10 10 30"},
		{"refresh", func(ctx context.Context, f *fleet) error { _, err := f.Refresh(ctx, Lists{}); return err }, "10 10 10"},
		{"freeze", func(ctx context.Context, f *fleet) error {
			_, err := hold.Freeze(ctx, f.Publisher, hold.Order{Nodes: []string{"n1"}})
			return err
		}, "10 10 10"},
		{"retire", func(ctx context.Context, f *fleet) error { _, err := f.Retire(ctx, []string{"n2"}, By{}); return err }, "10 10 -"},
		{"prune", func(ctx context.Context, f *fleet) error {
			_, err := prune.Run(ctx, &f.Reader, f.Alone, prune.Keep{Versions: 1, Generations: 2}, false)
			return err
		}, ""},
	} {
		for _, isFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, first %v", c.name, isFirst), func(t *testing.T) {
				l, cuts := fleettest.NewLine(t, server), 0
				for request := 1 + i%more; ; request += more {
					f, cut := cutPublish(t, l, fmt.Sprintf("/%d-%v-%d", i, isFirst, request), isFirst, request)
					f.follows(l, c.do, c.want, isFirst)
					if t.Failed() {
						t.Fatalf("cut at request %d with %v", request, cut)
					}
					if cut == nil {
						break
					}
					cuts++
				}
				t.Logf("%d cuts", cuts)
				if cuts < 27/more {
					t.Errorf("%d cuts: it is shorter than it was", cuts)
				}
			})
		}
	}
}

// follows lets something come after a publish of 20, and at last the same publish.
func (f *fleet) follows(l *fleettest.Line, do func(context.Context, *fleet) error, want string, isFirst bool) {
	t := f.T
	t.Helper()
	left := f.Values()
	f.Later(l)
	err := do(t.Context(), f)
	got := f.Values()
	if err == nil {
		if got != "- - -" { // of a first publish that came to nothing
			f.IsGreen(got)
		}
		through := strings.ReplaceAll(want, "10", "20")
		if want != "" && got != want && got != through && !isFirst {
			t.Errorf("nodes had %s, and have %s, want %s or %s", left, got, want, through)
		}
	} else if hint := cli.HintOf(err); got != left || !isFirst && !strings.Contains(hint, "'caisson publish' again") {
		t.Errorf("nodes had %s, and have %s: %v\n%s", left, got, err, hint)
	}
	f.Later(l)
	must(t, f.Gives(t.Context(), "20", Options{}))
	last := f.Values()
	f.IsGreen(last)
	if frozen := strings.Split(got, " ")[1]; last != "20 20 20" && last != "20 "+frozen+" 20" {
		t.Errorf("published again: nodes have %s, had %s", last, got)
	}
}
