// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func reported() *Status {
	at := time.Unix(1790000000, 0).UTC()
	return &Status{Fleet: "f", Node: "n", BootID: "b", RootID: "r", Tracking: Following, Sync: SyncCurrent, Health: HealthDegraded, HealthDetail: "x", HealthSince: at,
		Items: []ItemStatus{{Name: "sysctl", State: ItemOK, Applied: 3}}, Operations: []OperationStatus{{Name: "m/o", Log: "/var/log"}}}
}

func signable(s *Status) *Report {
	r := NewReport(s)
	r.Key, r.Grade, r.Seq = "k", KeyPinned, 1
	return r
}

// A node on which everything drifts reports within the bound, and says how much it
// left out.
func TestReportsAreBounded(t *testing.T) {
	for _, drifts := range []int{0, 1, 63, 64, 65, 5000} {
		s := reported()
		s.HealthDetail = strings.Repeat("ä", 1<<20)
		for i := range drifts {
			s.Drift = append(s.Drift, Drift{Item: "files", Key: fmt.Sprint("/etc/", i), From: strings.Repeat("<\x00\"é", 1000), To: "x", Action: ActionChange})
		}
		data, err := signable(s).Encode()
		if err != nil || len(data) > maxUnsigned {
			t.Fatalf("%d drifts: %d bytes, %v", drifts, len(data), err)
		}
		r, err := DecodeReport(data)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(r.Drift) + r.More; got != drifts {
			t.Errorf("%d drifts: %d listed, %d more", drifts, len(r.Drift), r.More)
		}
		if drifts == 63 && len(r.Drift) == 0 {
			t.Error("no drift is told")
		}
		if d := r.Axes.Health.Detail; !utf8.ValidString(d) || len(d) > maxText+3 {
			t.Errorf("a detail of %d bytes, valid %v", len(d), utf8.ValidString(d))
		}
		if r.Operations[0].Log != "" {
			t.Error("a path of the node is told")
		}
	}
}

// A boot of very many steps is told by the longest, in their order, and not at all where
// what is wrong needs the room.
func TestBootInAReport(t *testing.T) {
	var trace Trace
	for i := range 100 {
		trace.Boot = append(trace.Boot, Step{Name: fmt.Sprint("b", i), Start: float64(i), Took: float64(i % 2), Result: strings.Repeat("x", 1000)})
	}
	trace.First = []Step{{Name: "first", Start: 100, Took: 9, Result: StepOK}}
	r := signable(reported())
	r.SetBoot(&trace)
	if len(r.Boot) != MaxSteps || r.Boot[0].Name != "b1" || r.Boot[1].Name != "b3" || len(r.Boot[0].Result) > maxText+3 {
		t.Errorf("%d steps: %+v", len(r.Boot), r.Boot)
	}
	if last := r.Boot[len(r.Boot)-1]; last.Name != "first" {
		t.Errorf("the longest is not told: %+v", last)
	}
	r.SetBoot(&Trace{Boot: trace.Boot[:3], First: trace.First})
	if len(r.Boot) != 4 {
		t.Errorf("%d of 4 steps", len(r.Boot))
	}
	read := func() *Report {
		t.Helper()
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReport(data)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(); len(got.Boot) != 4 {
		t.Errorf("%d steps were told", len(got.Boot))
	}
	for i := range 60 {
		r.Drift = append(r.Drift, Drift{Item: "files", Key: fmt.Sprint(i), Reason: strings.Repeat("y", 200)})
	}
	if got := read(); got.Boot != nil || len(got.Drift) < 30 {
		t.Errorf("%d steps, %d drifts", len(got.Boot), len(got.Drift))
	}
}

func TestDecodeReport(t *testing.T) {
	good := signable(reported())
	data, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(data), `"axes":{`, `"new":1,"axes":{"mood":{"state":"x"},`, 1)
	if r, err := DecodeReport([]byte(later)); err != nil || r.Axes.Health.State != "degraded" {
		t.Errorf("of a later release: %v", err)
	}
	for what, change := range map[string]func(*Report){
		"no key": func(r *Report) { r.Key = "" }, "no node": func(r *Report) { r.Node = "" }, "no fleet": func(r *Report) { r.Fleet = "" }, "no boot": func(r *Report) { r.BootID = "" },
		"grade": func(r *Report) { r.Grade = "tpm" }, "number 0": func(r *Report) { r.Seq = 0 }, "large number": func(r *Report) { r.Seq = MaxSeq + 1 },
		"kind": func(r *Report) { r.Kind = KindStatus }, "version": func(r *Report) { r.APIVersion = "v2" },
	} {
		r := *good
		change(&r)
		data, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeReport(data); err == nil {
			t.Errorf("%s: it was taken", what)
		}
	}
	for _, text := range []string{"", "{", "[]", `"x"`} {
		if _, err := DecodeReport([]byte(text)); err == nil {
			t.Errorf("%.10q was taken", text)
		}
	}
}

func FuzzDecodeReport(f *testing.F) {
	data, err := signable(reported()).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeReport(data)
		if err != nil {
			return
		}
		if again, err := Encode(r); err != nil {
			t.Fatal(err)
		} else if _, err := DecodeReport(again); err != nil {
			t.Errorf("%s\nbecame\n%s: %v", data, again, err)
		}
	})
}
