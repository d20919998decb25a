// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
)

// at returns who announces itself on a registry server.
func at(t *testing.T, ref, by string) *Reserver {
	t.Helper()
	r, err := registry.Open(ref+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return &Reserver{Registry: r, Now: time.Now().UTC().Truncate(time.Second), Say: t.Logf, By: by, Pace: Usual}
}

// Who comes while another is at work does nothing, and begins when that is done.
func TestOneAtATime(t *testing.T) {
	ref := registrytest.Distribution(t)
	ann, bob := at(t, ref, "ann"), at(t, ref, "bob")
	ran := ""
	work := func(by string, then func(*Lease)) func(context.Context, *Lease) error {
		return func(ctx context.Context, l *Lease) error {
			ran += by
			if err := l.CheckOwned(ctx); err != nil {
				t.Errorf("%s: %v", by, err)
			}
			if then != nil {
				then(l)
			}
			return nil
		}
	}
	others, err := ann.Run(t.Context(), Start{Generation: 1}, work("a", func(l *Lease) {
		others, err := bob.Run(t.Context(), Start{Generation: 1}, work("b", nil))
		if err != nil || len(others) != 1 || others[0].By != "ann" || !others[0].Renewed {
			t.Errorf("beside ann: %+v, %v", others, err)
		}
		if s, err := bob.Standing(t.Context()); err != nil || len(s) != 1 || s[0].By != "ann" {
			t.Errorf("at work are %+v, %v", s, err)
		}
	}))
	if err != nil || len(others) > 0 || ran != "a" {
		t.Fatalf("%q ran, %+v, %v", ran, others, err)
	}
	if others, err := bob.Run(t.Context(), Start{Generation: 2}, work("b", nil)); err != nil || len(others) > 0 || ran != "ab" {
		t.Errorf("after ann: %q ran, %+v, %v", ran, others, err)
	}
	if s, err := bob.Standing(t.Context()); err != nil || len(s) > 0 {
		t.Errorf("left is %+v, %v", s, err)
	}
	if _, err := bob.Run(t.Context(), Start{Manifest: "sha256:other", Generation: 2}, work("c", nil)); !errors.Is(err, ErrTaken) || ran != "ab" {
		t.Errorf("of another index: %q ran, %v", ran, err)
	}
}

// The generation of a publisher that died is given out to nobody, and the publisher writes
// nothing any more, should it live.
func TestTheDeadKeepTheirGeneration(t *testing.T) {
	ref := registrytest.Distribution(t)
	ann, bob := at(t, ref, "ann"), at(t, ref, "bob")
	_, err := ann.Run(t.Context(), Start{Generation: 1, Reserved: 4}, func(ctx context.Context, mine *Lease) error {
		bob.Ignore = mine.Tag()
		others, err := bob.Run(ctx, Start{Generation: 1}, func(_ context.Context, l *Lease) error {
			if l.After != 5 || l.Reserves != 6 {
				t.Errorf("bob has %d, after %d", l.Reserves, l.After)
			}
			return nil
		})
		if err != nil || len(others) > 0 {
			t.Errorf("in ann's place: %+v, %v", others, err)
		}
		return mine.CheckOwned(ctx)
	})
	if !errors.Is(err, ErrLost) {
		t.Errorf("ann writes on: %v", err)
	}
}

// A publisher that gives out a later generation than the one after the index keeps those out, too,
// who come when the index says that.
func TestALaterGeneration(t *testing.T) {
	ref := registrytest.Distribution(t)
	ann, bob := at(t, ref, "ann"), at(t, ref, "bob")
	_, err := ann.Run(t.Context(), Start{Generation: 10, Reserved: 10}, func(ctx context.Context, mine *Lease) error {
		if mine.Reserves != 11 {
			t.Errorf("ann gives out %d", mine.Reserves)
		}
		others, err := bob.Run(ctx, Start{Generation: 12}, func(context.Context, *Lease) error {
			t.Error("bob is at work, too")
			return nil
		})
		if err != nil || len(others) != 1 || others[0].By != "ann" {
			t.Errorf("beside ann: %+v, %v", others, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An intent that nobody renews is in the way until its time is over, and the error names it.
func TestAnIntentWithoutAPublisher(t *testing.T) {
	ref := registrytest.Distribution(t)
	bob := at(t, ref, "bob")
	left := Intent{Generation: 1, At: bob.Now, Nonce: "left"}
	if err := bob.Registry.PutData(t.Context(), oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, left.annotated(map[string]string{}), left.Tag()); err != nil {
		t.Fatal(err)
	}
	ran := false
	work := func(context.Context, *Lease) error { ran = true; return nil }
	others, err := bob.Run(t.Context(), Start{Generation: 1}, work)
	if err != nil || len(others) != 1 || ran {
		t.Fatalf("%+v, %v", others, err)
	}
	var hinted interface{ Hint() string }
	if err := bob.Await(t.Context(), others); !errors.Is(err, ErrTaken) || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "--ignore-intent "+left.Tag()) {
		t.Errorf("%v", err)
	}
	bob.Now = bob.Now.Add(Honored + time.Minute)
	if others, err := bob.Run(t.Context(), Start{Generation: 1}, work); err != nil || len(others) > 0 || !ran {
		t.Errorf("hours later: %+v, %v", others, err)
	}
}

// TestIntentGolden: the reservation that 0.9.0 wrote is read, and written byte-equal.
func TestIntentGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/intent.json")
	if err != nil {
		t.Fatal(err)
	}
	i := Intent{Epoch: 1, Generation: 7, At: time.Unix(1800000000, 0).UTC(), Nonce: "0123456789abcdef"}
	if made := i.manifest(Announcement{By: "ann@example.org", Reserves: 8}, 3); !bytes.Equal(made, golden) {
		t.Errorf("written otherwise:\n%s", made)
	}
	if read, ok := Parse("intent-1-7-1800000000-0123456789abcdef"); !ok || read != i || i.Tag() != "intent-1-7-1800000000-0123456789abcdef" {
		t.Errorf("%+v, %v, tag %s", read, ok, i.Tag())
	}
	at, err := registry.Open(registrytest.Distribution(t)+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reserver{Registry: at, Now: i.At, Say: t.Logf, Pace: Usual}
	if err := at.PutData(t.Context(), oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		t.Fatal(err)
	}
	if _, err := at.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, golden, i.Tag()); err != nil {
		t.Fatal(err)
	}
	if s, err := r.read(t.Context(), i); err != nil || !s.Renewed || s.Reserves != 8 || s.By != "ann@example.org" {
		t.Errorf("%+v, %v", s, err)
	}
}
