// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// Every state of one check beside every state of another: the worse one decides.
func TestJudge(t *testing.T) {
	checks := []spec.HealthCheck{{Name: "a", Interval: 10, Retries: 2, Soak: 60}, {Name: "b", Interval: 5, Retries: 2, Soak: 60}}
	states := []struct {
		what string
		p    Progress
		want State
	}{
		{"not looked at", Progress{}, Waiting},
		{"failed once", Progress{Looked: 100, Failures: 1, Why: "no"}, Waiting},
		{"failed as often as it may", Progress{Looked: 100, Failures: 2, Why: "no"}, Waiting},
		{"failed once too often", Progress{Looked: 100, Failures: 3, Why: "no"}, Failed},
		{"holds for too short", Progress{Looked: 100, Since: 41}, Waiting},
		{"holds for long enough", Progress{Looked: 100, Since: 40}, Passed},
		{"holds after failures", Progress{Looked: 100, Since: 40, Failures: 2, Why: "no"}, Passed},
		{"holds, but failed too often before", Progress{Looked: 100, Since: 40, Failures: 3, Why: "no"}, Failed},
	}
	rank := map[State]int{Passed: 0, Waiting: 1, Failed: 2}
	for _, a := range states {
		for _, b := range states {
			r := Record{Checks: map[string]Progress{"a": a.p, "b": b.p}}
			v := r.Judge(checks)
			want := a.want
			if rank[b.want] > rank[want] {
				want = b.want
			}
			if v.State != want || v.Why == "" {
				t.Errorf("a %s, b %s: %+v, want %s", a.what, b.what, v, want)
			}
			if next := min(due(checks[0], a.p), due(checks[1], b.p)); want == Waiting && v.Next != next {
				t.Errorf("a %s, b %s: looked at again at %d, want %d", a.what, b.what, v.Next, next)
			}
			if all := a.p.Since > 0 && b.p.Since > 0; want == Waiting && (v.Until > 0) != all {
				t.Errorf("a %s, b %s: until %d", a.what, b.what, v.Until)
			}
		}
	}
	if v := new(Record).Judge(nil); v.State != Passed {
		t.Errorf("no checks: %+v", v)
	}
}

func TestNote(t *testing.T) {
	no := errors.New("no")
	for _, tt := range []struct {
		what string
		p    Progress
		mark string
		err  error
		want Progress
	}{
		{"first, holds", Progress{}, "x", nil, Progress{Looked: 50, Since: 50, Mark: "x"}},
		{"first, fails", Progress{}, "x", no, Progress{Looked: 50, Failures: 1, Mark: "x", Why: "no"}},
		{"goes on to hold", Progress{Looked: 40, Since: 30, Mark: "x"}, "x", nil, Progress{Looked: 50, Since: 30, Mark: "x"}},
		{"holds no more", Progress{Looked: 40, Since: 30, Mark: "x", Failures: 1}, "x", no, Progress{Looked: 50, Failures: 2, Mark: "x", Why: "no"}},
		{"holds again", Progress{Looked: 40, Failures: 1, Mark: "x", Why: "no"}, "y", nil, Progress{Looked: 50, Since: 50, Failures: 1, Mark: "y", Why: "no"}},
		{"restarted between two looks", Progress{Looked: 40, Since: 30, Mark: "x"}, "y", nil, Progress{Looked: 50, Failures: 1, Mark: "y", Why: "it was restarted"}},
	} {
		if diff := cmp.Diff(tt.want, tt.p.note(50, tt.mark, tt.err)); diff != "" {
			t.Errorf("%s: %s", tt.what, diff)
		}
	}
	if p := (Progress{}).note(1, "", errors.New(strings.Repeat("ä", 5000))); len([]rune(p.Why)) > 301 {
		t.Errorf("an error of %d bytes is kept", len(p.Why))
	}
}

// Whatever checks do, the gate ends: it passes, or fails after a number of looks that
// the retries bound. A probe that flaps for ever does not keep it open.
func TestItEnds(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		checks := []spec.HealthCheck{{Name: "a", Interval: 10, Retries: rnd.Int64N(5), Soak: rnd.Int64N(100)}, {Name: "b", Interval: 7, Retries: rnd.Int64N(5), Soak: rnd.Int64N(100)}}
		r := Record{Checks: map[string]Progress{}}
		now, looks := int64(1), 0
		for v := r.Judge(checks); v.State == Waiting; v = r.Judge(checks) {
			if looks++; looks > 400 {
				t.Fatalf("seed %d: it does not end: %+v", seed, r)
			}
			now = max(now+1, v.Next)
			for _, c := range r.dueNow(checks, now) {
				var err error
				if rnd.IntN(4) == 0 {
					err = errors.New("flaps")
				}
				r.Checks[c.Name] = r.Checks[c.Name].note(now, "", err)
			}
		}
	}
}

func TestRecordIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "gates.json")
	if r, err := Load(name); r != nil || err != nil {
		t.Errorf("there is none: %+v, %v", r, err)
	}
	want := Record{Root: "root", Overlay: "sha256:aa", Began: 7, Checks: map[string]Progress{"a": {Looked: 8, Since: 8}}}
	if err := want.Save(name); err != nil {
		t.Fatal(err)
	}
	got, err := Load(name)
	if err != nil || !got.Of("root", "sha256:aa") || got.Of("other", "sha256:aa") || got.Of("root", "sha256:bb") {
		t.Fatalf("%+v, %v", got, err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "{", `{"checks":7}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Load(name); r != nil || err != nil {
			t.Errorf("%q is read as %+v, %v", text, r, err)
		}
	}
	if (*Record)(nil).Of("", "") {
		t.Error("no record is about something")
	}
}

func ExampleRecord_Judge() {
	checks := []spec.HealthCheck{{Name: "kubelet", Retries: 30, Interval: 10, Soak: 120}}
	r := Record{Checks: map[string]Progress{"kubelet": {Looked: 60, Since: 50}}}
	v := r.Judge(checks)
	fmt.Println(v.State, v.Until, v.Why)
	// Output: waiting 170 kubelet holds, and must for 120 s
}

// TestGolden: what a release wrote of checks is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/gates.json", Page: "../../../docs/formats/node-files.md", New: new(Record), Write: spec.Encode,
		Read:  func(data []byte) (any, error) { r := new(Record); return r, json.Unmarshal(data, r) },
		Types: []reflect.Type{reflect.TypeFor[Record](), reflect.TypeFor[Progress]()}})
}
