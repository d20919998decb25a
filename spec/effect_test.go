// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every part of an overlay has its effect, and a change of it is seen: a part
// that were forgotten would change and the node would never know.
func TestEveryPartHasAnEffect(t *testing.T) {
	parts := slices.Concat(jsonNames(reflect.TypeFor[Core](), ""), sections(), jsonNames(reflect.TypeFor[Items](), "items."))
	var rows []string
	for _, e := range Effects {
		rows = append(rows, e.Part)
		if e.Class == "" || e.Why == "" {
			t.Errorf("%s has no class or no reason", e.Part)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(parts)), slices.Sorted(slices.Values(rows))) {
		t.Errorf("parts %v\n rows %v", parts, rows)
	}
	whole := full()
	for _, name := range parts {
		var one Overlay
		from, to := reflect.ValueOf(whole.Core), reflect.ValueOf(&one.Core).Elem()
		short := strings.TrimPrefix(name, "items.")
		switch {
		case slices.Contains(sections(), name):
			from, to = reflect.ValueOf(whole), reflect.ValueOf(&one).Elem()
		case short != name:
			from, to = reflect.ValueOf(whole.Items), reflect.ValueOf(&one.Items).Elem()
		}
		for i := range from.NumField() {
			if jsonName(from.Type().Field(i)) == short {
				to.Field(i).Set(from.Field(i))
			}
		}
		changes := Changes(&Overlay{}, &one)
		if len(changes) != 1 || changes[0].Part != name {
			t.Fatalf("a change of %s is seen as %v: has full a value of it?", name, changes)
		}
		before, err := RootID(&Overlay{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if after, err := RootID(&one, one.Layer); err != nil || (before == after) != Live(changes[0].Class) {
			t.Errorf("%s is of class %s, and its change makes another root: %t, %v", name, changes[0].Class, before != after, err)
		}
	}
}

// sections are the parts of an overlay beside its core and its items.
func sections() (out []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Overlay]()) {
		if len(f.Index) == 1 && !f.Anonymous && f.Name != "Items" {
			out = append(out, jsonName(f))
		}
	}
	return out
}

func jsonNames(t reflect.Type, prefix string) (out []string) {
	for i := range t.NumField() {
		out = append(out, prefix+jsonName(t.Field(i)))
	}
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// TestOperationEnded: which states say that a run came to its end.
func TestOperationEnded(t *testing.T) {
	at := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		o             OperationStatus
		ended, failed bool
	}{
		{OperationStatus{State: OperationDone, Since: at}, true, false},
		{OperationStatus{State: OperationScheduled, Since: at}, true, false},
		{OperationStatus{State: OperationScheduled}, false, false}, // it never ran
		{OperationStatus{State: OperationFailed, Since: at}, true, true},
		{OperationStatus{State: OperationWaiting, For: ForRetry, Since: at}, true, true},
		{OperationStatus{State: OperationWaiting, For: ForWindow, Since: at}, false, false},
		{OperationStatus{State: OperationRunning, Since: at}, false, false},
		{OperationStatus{State: OperationHolding, Since: at}, false, false},
		{OperationStatus{State: OperationCannot, Since: at}, false, false},
	} {
		when, failed := test.o.Ended()
		if when.Equal(at) != test.ended || failed != test.failed {
			t.Errorf("%s %s: %v %v", test.o.State, test.o.For, when, failed)
		}
	}
}
