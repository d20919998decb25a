// SPDX-License-Identifier: Apache-2.0

package uptime

import (
	"errors"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

func TestRecorder(t *testing.T) {
	var r Recorder
	before := milliseconds(Now())
	outer := r.Begin("outer")
	inner := r.Begin("inner")
	time.Sleep(20 * time.Millisecond)
	inner(errors.New("no answer"))
	outer(nil)
	s := r.Steps()
	if len(s) != 2 || s[0].Name != "inner" || s[0].Result != "no answer" || s[1].Name != "outer" || s[1].Result != spec.StepOK {
		t.Fatalf("%+v", s)
	}
	if s[1].Start < before || s[0].Start < s[1].Start || s[0].Took < 20 || s[1].Took < s[0].Took || s[1].Start+s[1].Took > milliseconds(Now())+0.01 { // each is rounded
		t.Errorf("%+v", s)
	}
	r.Bytes(spec.Bytes{})
	if r.Steps()[1].Bytes != nil {
		t.Error("a step that brought nothing brought something")
	}
	r.Bytes(spec.Bytes{Fetched: 3, Had: 4})
	if s := r.Steps(); s[1].Bytes == nil || s[1].Bytes.Had != 4 || s[0].Bytes != nil {
		t.Errorf("%+v", s)
	}
	for range 2 * most {
		r.Begin("again")(nil)
	}
	r.Begin("end")(nil)
	if s := r.Steps(); len(s) != most || s[0].Name != "inner" || s[most-1].Name != "end" {
		t.Errorf("%d steps, %s to %s", len(s), s[0].Name, s[len(s)-1].Name)
	}
}
