// SPDX-License-Identifier: Apache-2.0

package require

import (
	"fmt"
	"testing"
)

// outcome is a test that writes down how it would end.
type outcome struct {
	testing.TB
	end string
}

func (o *outcome) Helper()               {}
func (o *outcome) Fatalf(string, ...any) { o.stop("fails") }
func (o *outcome) Skipf(string, ...any)  { o.stop("skips") }

func (o *outcome) stop(end string) {
	o.end = end
	panic(o)
}

func outcomeOf(ask func(testing.TB)) string {
	o := &outcome{end: "runs"}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(o) {
				panic(r)
			}
		}()
		ask(o)
	}()
	return o.end
}

// What is left out is skipped, required or not.
func TestWithout(t *testing.T) {
	btime := func(t testing.TB) { Missing(t, "btime", "there is none") }
	for _, test := range []struct {
		required, without string
		ask               func(testing.TB)
		want              string
	}{
		{"", "", btime, "skips"},
		{"root,btime", "", btime, "fails"},
		{"all", "root,net", btime, "fails"},
		{"all", "root,btime", btime, "skips"},
		{"all", "root,net", Root, "skips"},
		{"root", "root", Root, "skips"},
		{"", "root", Net, "runs"},
		{"all", "", Net, "runs"},
		{"", "root,net", Net, "skips"},
		{"all", "net", Net, "skips"},
		{"all", "net", Slow, "runs"},
		{"all", "net,slow", Slow, "skips"},
	} {
		t.Run(fmt.Sprintf("%s without %s", test.required, test.without), func(t *testing.T) {
			t.Setenv("CAISSON_REQUIRE", test.required)
			t.Setenv("CAISSON_WITHOUT", test.without)
			if got := outcomeOf(test.ask); got != test.want {
				t.Errorf("the test %s, want that it %s", got, test.want)
			}
		})
	}
}
