// SPDX-License-Identifier: Apache-2.0

// Package events writes down what a node did and what befell it: a record of each act in
// systemd's journal, for who reads along, and each failure in the black box, for who
// comes when the node is down.
//
// It writes what it is given. Which event is worth writing is decided by who does it.
package events

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Field is one NAME=value of a record.
type Field struct {
	Name  string // in small letters
	Value any
}

// With returns a field.
func With(name string, value any) Field { return Field{name, value} }

// Log is where the records of a node go.
type Log struct {
	Root string // prefix of every path, for tests
	By   string // who acts: the service, or a person and the verb
	Say  func(format string, args ...any)
}

// Record writes down what was done to the node: the event, who did it, and fields. It
// goes to systemd's journal, with a field there for each here, and is said in one line
// of NAME=value where people read along, quoted where that is needed.
func (l Log) Record(event string, fields ...Field) {
	fields = append([]Field{{"by", l.By}}, fields...)
	var line strings.Builder
	line.WriteString(event)
	for _, f := range fields {
		fmt.Fprintf(&line, " %s=%s", f.Name, quote(fmt.Sprint(f.Value)))
	}
	err := l.send(event, line.String(), fields)
	if err != nil || !saidToJournal() { // else it would be there twice
		l.Say("%s", line.String())
	}
}

// Changes writes a record of each change that a run made for a generation.
func (l Log) Changes(changes []spec.Drift, generation uint64, why string) {
	for _, d := range changes {
		d = rules.Spelled(d)
		fields := []Field{{"item", d.Item}, {"key", d.Key}, {"from", d.From}, {"to", d.To}, {"action", d.Action}, {"generation", generation}, {"why", why}}
		if d.Rival != "" {
			fields = append(fields, Field{"rival", d.Rival})
		}
		l.Record("change", fields...)
	}
}

func quote(s string) string {
	if s == "" || strings.ContainsAny(s, " =\"\\") || strconv.Quote(s) != `"`+s+`"` {
		return strconv.Quote(s)
	}
	return s
}

// Kmsg is the kernel's log, the last lines of which say what a failure was.
const Kmsg = "/dev/kmsg"

// Note puts an event of a generation into the black box, once a boot: what fails every
// five minutes must not write over what was before. boot is the id of this boot.
func Note(box blackbox.Box, boot string, g state.Generation, e spec.Event) error {
	e = of(g, boot, e)
	before, err := box.Events()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(before, func(b spec.Event) bool {
		return b.Boot == e.Boot && b.Event == e.Event && b.Overlay == e.Overlay && b.Code == e.Code && (b.Why == e.Why || e.Event == spec.EventRefused)
	}) {
		return nil
	}
	return box.Add(e)
}

// of fills in when and of what an event is.
func of(g state.Generation, boot string, e spec.Event) spec.Event {
	e.Time, e.Boot = time.Now().UTC().Truncate(time.Second), boot
	e.Generation, e.Epoch, e.Overlay, e.Layer = g.Generation, g.Epoch, g.Overlay, g.Layer
	return e
}
