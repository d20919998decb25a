// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// after is a place that answers after a while, with an error or its name as a manifest.
type after struct {
	wait time.Duration
	name string
	err  error
}

func (a after) Manifest(ctx context.Context, _, _, _ string) (oci.Response, error) {
	select {
	case <-ctx.Done():
		return oci.Response{}, ctx.Err()
	case <-time.After(a.wait):
		return oci.Response{Data: []byte(a.name)}, a.err
	}
}

func (a after) Blob(context.Context, string, oci.Descriptor, int64) (io.ReadCloser, error) {
	return nil, a.err
}

const (
	silence = time.Hour
	s       = time.Second
)

// TestAccepted: the right answer counts wherever it comes from, and who says nothing costs
// 10 s.
func TestAccepted(t *testing.T) {
	good := func(wait time.Duration, name string) after { return after{wait: wait, name: name} }
	none := func(wait time.Duration) after { return after{wait: wait, err: oci.ErrNotFound} }
	rubbish := good(0, "rubbish")
	lateRubbish := good(s, "rubbish")
	for name, c := range map[string]struct {
		places []oci.Source
		order  oci.Order
		all    bool
		want   []string // nil: an error
		after  time.Duration
	}{
		"the first knows best":             {[]oci.Source{good(5*s, "a"), good(0, "b")}, oci.InOrder, false, []string{"a"}, 5 * s},
		"rubbish first":                    {[]oci.Source{lateRubbish, good(s, "b")}, oci.InOrder, false, []string{"b"}, 2 * s},
		"silence first":                    {[]oci.Source{good(silence, "a"), good(s, "b")}, oci.InOrder, false, []string{"b"}, 11 * s},
		"silence, rubbish, and a third":    {[]oci.Source{good(silence, "a"), lateRubbish, good(s, "c")}, oci.InOrder, false, []string{"c"}, 12 * s},
		"the first is slow, then right":    {[]oci.Source{good(12*s, "a"), good(5*s, "b")}, oci.InOrder, false, []string{"a"}, 12 * s},
		"a slow line, and rubbish":         {[]oci.Source{good(40*s, "a"), rubbish}, oci.InOrder, false, []string{"a"}, 40 * s},
		"a slow line, and who has none":    {[]oci.Source{good(40*s, "a"), none(0)}, oci.InOrder, false, []string{"a"}, 40 * s},
		"one place that is slow":           {[]oci.Source{good(40*s, "a")}, oci.AtOnce, false, []string{"a"}, 40 * s},
		"at once, the fastest right one":   {[]oci.Source{good(5*s, "a"), rubbish, good(s, "c")}, oci.AtOnce, false, []string{"c"}, s},
		"at once, none and slow":           {[]oci.Source{none(0), good(9*s, "b")}, oci.AtOnce, false, []string{"b"}, 9 * s},
		"at once, none and silence":        {[]oci.Source{none(0), good(silence, "b")}, oci.AtOnce, false, nil, 10 * s},
		"at once, none late, and silence":  {[]oci.Source{none(15 * s), good(silence, "b")}, oci.AtOnce, false, nil, 15 * s},
		"at once, a slow line and rubbish": {[]oci.Source{rubbish, good(40*s, "b")}, oci.AtOnce, false, []string{"b"}, 40 * s},
		"rubbish before what it mirrors":   {[]oci.Source{none(0), oci.Places(rubbish, good(s, "c"))}, oci.AtOnce, false, []string{"c"}, s},
		"all":                              {[]oci.Source{good(3*s, "a"), rubbish, none(0), good(s, "d")}, oci.AtOnce, true, []string{"d", "a"}, 3 * s},
		"all, and silence":                 {[]oci.Source{good(silence, "a"), good(s, "b")}, oci.AtOnce, true, []string{"b"}, 10 * s},
		"all, of a slow line and rubbish":  {[]oci.Source{rubbish, good(40*s, "b")}, oci.AtOnce, true, []string{"b"}, 40 * s},
		"nobody":                           {[]oci.Source{none(s), none(2 * s)}, oci.InOrder, false, nil, 3 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := time.Now()
				got, err := askFor(t.Context(), oci.Places(c.places...), c.order, c.all)
				if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
					t.Errorf("%q, %v, want %q", got, err, c.want)
				}
				if took := time.Since(from); took != c.after {
					t.Errorf("it took %v, want %v", took, c.after)
				}
				if c.want == nil && !oci.Missing(err) {
					t.Errorf("%v says that somebody may hold it", err)
				}
			})
		})
	}
}

func askFor(ctx context.Context, src oci.Source, order oci.Order, all bool) (got []string, err error) {
	ask := func(ctx context.Context, place oci.Source) (oci.Response, error) {
		return place.Manifest(ctx, oci.RepoFleet, "current", "")
	}
	accept := func(r oci.Response) (string, error) {
		if string(r.Data) == "rubbish" {
			return "", refusal.New(refusal.Malformed, "rubbish")
		}
		return string(r.Data), nil
	}
	if all {
		return oci.Everywhere(ctx, src, ask, accept)
	}
	one, err := oci.Accepted(ctx, src, order, ask, accept)
	if err == nil {
		got = []string{one}
	}
	return got, err
}

// TestWhoIsSilentCostsOnce: a place that said nothing is not waited for by the next question,
// and is again after a minute, when it may answer.
func TestWhoIsSilentCostsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := oci.Places(after{wait: silence}, after{wait: s, name: "b"})
		for i, want := range []time.Duration{11 * s, s, s} {
			from := time.Now()
			if got, err := askFor(t.Context(), src, oci.InOrder, i == 1); err != nil || time.Since(from) != want {
				t.Errorf("question %d: %q, %v after %v, want %v", i+1, got, err, time.Since(from), want)
			}
		}
		time.Sleep(time.Minute)
		from := time.Now()
		if _, err := askFor(t.Context(), src, oci.InOrder, false); err != nil || time.Since(from) != 11*s {
			t.Errorf("after a minute: %v after %v", err, time.Since(from))
		}
	})
}

// TestAcceptedEnds: with its context, though a place does not.
func TestAcceptedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*s)
		defer cancel()
		deaf := func(_ context.Context, place oci.Source) (oci.Response, error) {
			return place.Manifest(context.WithoutCancel(ctx), oci.RepoFleet, "current", "")
		}
		from := time.Now()
		_, err := oci.Accepted(ctx, oci.Places(after{wait: time.Minute}, after{wait: time.Minute}), oci.AtOnce, deaf, func(oci.Response) (any, error) { return nil, nil })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(from) != 5*s || oci.Missing(err) {
			t.Errorf("%v after %v", err, time.Since(from))
		}
		time.Sleep(time.Minute) // until they end
	})
}
