// SPDX-License-Identifier: Apache-2.0

// Package events writes down what a node did and what befell it: a record of each act in
// systemd's journal, for who reads along, and each failure in the black box, for who
// comes when the node is down.
//
// It writes what it is given. Which event is worth writing is decided by who does it, the loader or
// a part of a node. Nothing on a state disk is signed, so nothing is ever decided by what is in the
// black box.
package events

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Why a change was made that no operator and no new generation asked for.
const (
	WhyBoot   = "boot"   // the root has just come up: what it lacks is set
	WhyAgain  = "again"  // all was put back before
	WhyDrift  = "drift"  // it was right before
	WhyWaited = "waited" // what it was deferred for has come: a module, a device, a path, a window
)

// Field is one NAME=value of a record.
type Field struct {
	Name  string // in small letters
	Value any
}

// With returns a field.
func With(name string, value any) Field { return Field{name, value} }

// Transition returns the field of an event that comes of a decision, by the name of its row.
func Transition(name string) Field { return Field{"transition", name} }

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
		fields := []Field{{"item", d.Item}, {"key", d.Key}, {"from", d.From}, {"to", d.To}, {"action", d.Action},
			{"generation", generation}, {"why", why}}
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
func Note(box Box, boot string, g state.Generation, e spec.Event) error {
	e = of(g, boot, e)
	before, err := box.Events()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(before, func(b spec.Event) bool {
		return b.Boot == e.Boot && b.Event == e.Event && b.Overlay == e.Overlay && b.Code == e.Code &&
			(b.Why == e.Why || e.Event == spec.EventRefused)
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

// journalSocket takes entries as datagrams, see the journal's native protocol in
// systemd-journald.service(8).
const journalSocket = "/run/systemd/journal/socket"

// send adds an entry to systemd's journal: the message, and each field as CAISSON_NAME.
// Without systemd that is an error.
func (l Log) send(event, message string, fields []Field) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: filepath.Join(l.Root, journalSocket), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close() // a datagram is sent or it is not
	var entry bytes.Buffer
	put := func(name, value string) {
		if !strings.Contains(value, "\n") {
			entry.WriteString(name + "=" + value + "\n")
			return
		}
		entry.WriteString(name + "\n") // with its length, for it has line breaks
		entry.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
		entry.WriteString(value + "\n")
	}
	put("MESSAGE", message)
	put("PRIORITY", "6")
	put("SYSLOG_IDENTIFIER", "caisson-agent")
	put("CAISSON_EVENT", event)
	for _, f := range fields {
		put("CAISSON_"+strings.ToUpper(f.Name), fmt.Sprint(f.Value))
	}
	_, err = conn.Write(entry.Bytes())
	return err
}

// saidToJournal reports whether standard error is the journal's, see JOURNAL_STREAM
// in systemd.exec(5).
func saidToJournal() bool {
	var st unix.Stat_t
	if unix.Fstat(2, &st) != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// Deadline notes in the black box that the boot of a new generation is ended, since
// it did not prove itself: why, and the console. It takes no lock, whose owner may be what
// hangs. id is that of this boot.
func Deadline(root, id, why string) error {
	boot, err := record.Load(root)
	if err != nil {
		return err
	}
	generation := boot.Generation
	if a := boot.Live.Applied; a != nil {
		generation = *a
	}
	e := of(generation, id, spec.Event{Event: spec.EventDeadline, Why: why, Did: "started the machine over", Console: Console(Kmsg)})
	return BoxAt(filepath.Join(root, paths.State, BoxName)).Add(e)
}
