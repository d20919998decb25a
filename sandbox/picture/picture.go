// SPDX-License-Identifier: Apache-2.0

// Package picture says what a running machine is, as a program sees it that knows nothing of
// caisson's agent: what the kernel's files say, what systemd says, what is in writable places.
//
//	p := picture.Take(picture.Options{Attributes: []string{"/sys/block/*/queue/scheduler"}})
//	for _, d := range picture.Compare(before, after) { … }
//
// A picture is a flat table: "sysctl vm.swappiness" has the value 10, "file /etc/hosts" has mode,
// owner and digest. What changes on a machine that nobody touches is in alone.txt, a reason
// each, and left out of comparisons; files of it are not read.
//
// It is taken by this program, put into the machine under the name [Program]. It imports nothing
// of caisson: a fault of the agent must not be repeated here. sandbox, sandbox/rehearsal and cmd/caisson import it.
package picture

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Program is the name under which the program takes a picture in place of all else that it does.
const Program = "caisson-picture"

// Picture has a value for each "KIND KEY".
type Picture map[string]string

// Options say what is looked at beside what is always.
type Options struct {
	Attributes []string // patterns of files below /sys
	Places     []string // directories whose files are listed; nil: each writable file system
}

// always are the attributes that settings of machines are about.
var always = []string{"/sys/module/*/parameters/*", "/sys/block/*/queue/*", "/sys/kernel/mm/transparent_hugepage/*", "/sys/kernel/mm/ksm/*",
	"/sys/devices/system/cpu/cpu*/cpufreq/scaling_*", "/sys/devices/system/cpu/*/online",
	"/sys/devices/system/clocksource/*/current_clocksource"}

// Take takes a picture of this machine. What cannot be read is left out: a kernel has keys that
// are only written.
func Take(o Options) (Picture, error) {
	p := Picture{}
	p.sysctls()
	const blocks = "/sys/block"
	d := readDevices(blocks)
	p.devices(d, blocks)
	p.attributes(append(slices.Clone(always), o.Attributes...), d)
	p.look(d, o.Places)
	p.modules()
	p.limits()
	p.accounts("/etc")
	return p, errors.Join(p.units(), p.network())
}

// Run takes a picture of this machine and writes it, with the attributes that args name. It
// returns an exit code.
func Run(args []string, out io.Writer) int {
	p, err := Take(Options{Attributes: args})
	if err = errors.Join(err, json.NewEncoder(out).Encode(p)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// IsProgram reports whether the program was started to take a picture.
func IsProgram() bool { return filepath.Base(os.Args[0]) == Program }

// Difference is a value that differs; one that is not there is empty.
type Difference struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// String is a line for people.
func (d Difference) String() string {
	return d.Kind + " " + d.Key + ": " + cmp.Or(d.Before, "nothing") + " before, " + cmp.Or(d.After, "nothing") + " after"
}

// boot is the name of what tells one boot from another.
const boot = "sysctl kernel.random.boot_id"

// Compare lists what differs, by kind and key, without what changes by itself. What is set, by
// "KIND KEY", changes by itself at a boot alone.
func Compare(before, after Picture, set ...string) []Difference {
	out := []Difference{}
	alone := func(name string) bool {
		return Alone(name) && (before[boot] != after[boot] || !slices.Contains(set, name))
	}
	for name, was := range before {
		is := after[name]
		if before[boot] != after[boot] && !slices.Contains(set, name) && sameInMemory(name, was, is) {
			continue
		}
		if is != was && !alone(name) {
			kind, key, _ := strings.Cut(name, " ")
			out = append(out, Difference{kind, key, was, is})
		}
	}
	for name, is := range after {
		if _, had := before[name]; !had && !alone(name) {
			kind, key, _ := strings.Cut(name, " ")
			out = append(out, Difference{Kind: kind, Key: key, After: is})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Kind+" "+a.Key, b.Kind+" "+b.Key) })
	return slices.DeleteFunc(out, func(d Difference) bool { return d.leads(out) })
}

// leads reports whether a directory came or went with something below it, which says as much.
func (d Difference) leads(all []Difference) bool {
	return d.Kind == "file" && strings.HasPrefix(d.Before+d.After, "04") && (d.Before == "" || d.After == "") &&
		slices.ContainsFunc(all, func(other Difference) bool { return other.Kind == d.Kind && strings.HasPrefix(other.Key, d.Key+"/") })
}

//go:embed alone.txt
var aloneText string

// alone matches what changes by itself.
var alone = sync.OnceValue(func() *regexp.Regexp {
	var all []string
	for line := range strings.Lines(aloneText) {
		if pattern, _, ok := strings.Cut(line, "#"); ok && strings.TrimSpace(pattern) != "" {
			all = append(all, strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(pattern)), `\*`, ".*"))
		}
	}
	return regexp.MustCompile("^(" + strings.Join(all, "|") + ")$")
})

// Alone reports whether what "KIND KEY" names changes on a machine that nobody touches.
func Alone(name string) bool { return alone().MatchString(name) }
