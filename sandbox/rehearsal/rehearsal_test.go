// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/sandbox/picture"
	"github.com/caisson-os/caisson/spec"
)

func TestHappened(t *testing.T) {
	was := marks{"a", "30", "6.12 quiet"}
	for is, want := range map[marks]string{
		was:                       spec.ClassLive,
		{"a", "41", "6.12 quiet"}: spec.ClassSoftReboot,
		{"b", "30", "6.12 quiet"}: spec.ClassReboot,
		{"b", "30", "6.12 debug"}: spec.ClassKexec,
	} {
		if got := happened(was, is); got != want {
			t.Errorf("%v: %s, want %s", is, got, want)
		}
	}
}

// The exit code is that of the worst thing that was found, and the text says each.
func TestAnswer(t *testing.T) {
	left := []picture.Difference{{Kind: "file", Key: "/root/left", After: "100644 0:0 1"}}
	for name, test := range map[string]struct {
		answer Answer
		err    error
		says   string
	}{
		"all is well":         {Answer{Said: spec.ClassLive, Happened: spec.ClassLive, Passed: true}, nil, "class\tlive said, live happened\n"},
		"without effect":      {Answer{Said: spec.ClassNone, Happened: spec.ClassLive, Passed: true}, nil, "passed"},
		"something stays":     {Answer{Said: spec.ClassLive, Happened: spec.ClassLive, Passed: true, Left: left}, cli.ErrDrift, "left\tfile /root/left: nothing before, 100644 0:0 1 after\n"},
		"another class":       {Answer{Said: spec.ClassLive, Happened: spec.ClassReboot, Passed: true}, cli.ErrDrift, "live said, reboot happened  DIFFERS"},
		"the node fails":      {Answer{Node: "n", Reason: "gate greeted", Left: left}, cli.ErrFailed, "FAILED\tn\tgate greeted\n"},
		"cold is by firmware": {Answer{Said: spec.ClassCold, Happened: spec.ClassReboot, Passed: true}, nil, "passed"},
	} {
		var out bytes.Buffer
		test.answer.Write(&out)
		if err := test.answer.Err(); !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

// What an overlay sets is named as a picture of this machine names it.
func TestSet(t *testing.T) {
	p, err := picture.Take(picture.Options{Places: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	o := &spec.Overlay{Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "net/ipv4/tcp_mem"}, {Key: "net/ipv4/conf/lo/forwarding"}}}}
	attributes, err := filepath.Glob("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range attributes { // not each machine has it
		o.Items.Sysfs = append(o.Items.Sysfs, spec.Sysfs{Path: path})
	}
	names := set(o)
	if len(names) != 2+len(attributes) {
		t.Errorf("%q", names)
	}
	for _, name := range names {
		if p[name] == "" {
			t.Errorf("no picture has %s", name)
		}
	}
}
