// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// BoxName is the name of the file in a state directory.
const BoxName = "blackbox"

// patience is how long Add waits for another process that notes something: who hangs in
// a write of a slot does not hold up the rest.
const patience = 5 * time.Second

// Box is the black box in a file: a ring of slots, of which each holds one event with a number and
// a checksum.
//
// A write touches one slot, that of the oldest event, and is synced: a power cut costs
// at most that one and the new one, whatever part of it reached the disk. The file is
// made whole once, so that a full disk does not keep an event from being noted, and never
// replaced: another process may be noting one. It lies in the state directory, and where that
// is in memory it ends with the boot; of a kernel that died, firmware may keep the last lines,
// see [Dump].
type Box struct {
	file     string
	patience time.Duration
}

// BoxAt returns the box in a file, which need not be there yet.
func BoxAt(file string) Box { return Box{file, patience} }

// Add notes an event, in the place of the oldest one where the box is full. What of it
// is too long is shortened. Where another process keeps the box for seconds, it is an
// error and nothing is noted.
func (b Box) Add(e spec.Event) (err error) {
	defer func() {
		err = fault.In(err, "note %s in the black box", e.Event)
	}()
	f, err := b.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := b.lock(f); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(make([]byte, size-len(data)), int64(len(data))); err != nil { // of what is whole nothing
		return err
	}
	next := uint64(0)
	for _, r := range parse(data) {
		next = r.Seq + 1
	}
	if next == math.MaxUint64 { // no node comes to it: others numbered these, so that nothing after them could be read
		next = 0
		if _, err := f.WriteAt(make([]byte, size), 0); err != nil {
			return err
		}
	}
	text, err := encode(noted{next, e})
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(text, int64(next%slots)*slot); err != nil {
		return err
	}
	return f.Sync()
}

// Blame says of an event what an error is: the code of a refusal, and what the kernel
// said.
func Blame(e spec.Event, err error) spec.Event {
	e.Why, e.Code = err.Error(), string(refusal.Of(err))
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		e.Errno = unix.ErrnoName(errno)
	}
	return e
}

// Events returns what is in the box, oldest first. What a cut or the disk has damaged is
// left out. A box that was never written to is empty.
func (b Box) Events() ([]spec.Event, error) {
	f, err := ownfiles.Open(b.file)
	if err != nil {
		return nil, fault.In(fault.But(err, fs.ErrNotExist), "read the black box")
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return nil, fmt.Errorf("read the black box: %w", err)
	}
	return plain.Each(parse(data), func(r noted) spec.Event { return r.Event }), nil
}

// lock waits for another process that writes a slot.
func (b Box) lock(f *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.patience)
	defer cancel()
	err := stall.Lock(ctx, f, false)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("another process has held it for %s", b.patience)
	}
	return err
}

func (b Box) open() (*os.File, error) {
	f, err := ownfiles.Create(b.file)
	if err == nil {
		err = errors.Join(f.Close(), durable.SyncDir(filepath.Dir(b.file)))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return ownfiles.Change(b.file)
}

// Each decision of a node can be noted with the facts that it was made by, for operators who have
// to find out why a machine did what it did: the same facts lead package decide to the same step on
// any machine. It is noted only where the file is there. The loader makes it for the word
// "caisson.decisions" of the kernel's command line; it is gone with the boot. What cannot be noted
// changes nothing.

// DecisionsWord is that of the kernel's command line for which decisions are noted.
const DecisionsWord = "caisson.decisions"

// Decision is one line of the file, in JSON.
type Decision struct {
	Step  string       `json:"step"` // name of the transition
	Facts decide.Facts `json:"facts"`
}

// decisionsLimit caps the file, in bytes: some thousand decisions.
const decisionsLimit = 4 << 20

// BeginDecisions makes the file, in a directory that is there, where the words of a command line ask for that.
func BeginDecisions(file string, words []string) error {
	if !slices.Contains(words, DecisionsWord) {
		return nil
	}
	return os.WriteFile(file, nil, 0o600)
}

// DecisionsInto returns what notes a decision in a file, where it is there and has room.
func DecisionsInto(file string) decide.Observer {
	return func(f *decide.Facts, s decide.Step) {
		out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
		if err != nil {
			return // nobody asked for notes
		}
		defer out.Close() // a note that is lost changes nothing
		if info, err := out.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > decisionsLimit {
			return
		}
		if line, err := json.Marshal(Decision{s.Name, *f}); err == nil {
			_, _ = out.Write(append(line, '\n')) // likewise
		}
	}
}

// A slot is a page: what a disk writes at once more often than not.
const (
	slot  = 4096
	slots = 64
	size  = slot * slots
)

// noted is an event as it is in its slot: the checksum of what follows up to the line's
// end, a space, and JSON. The rest of the slot is zero.
type noted struct {
	Seq   uint64     `json:"seq"`
	Event spec.Event `json:"event"`
}

const overhead = len("00000000 ") + len("\n")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode fills a slot.
func encode(r noted) ([]byte, error) {
	for {
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if len(text)+overhead <= slot {
			out := make([]byte, slot)
			copy(out, fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text))
			return out, nil
		}
		if !shorten(&r.Event) {
			return nil, errors.New("the event is too long")
		}
	}
}

// shorten takes something away from an event that is too long, least needed first: the
// older of the kernel's lines, then ends of what is said.
func shorten(e *spec.Event) bool {
	if len(e.Console) > 1 {
		e.Console = e.Console[1:]
		return true
	}
	texts := []*string{&e.Why, &e.Did, &e.Key, &e.Item, &e.Overlay, &e.Layer, &e.Boot, &e.Of, &e.Errno, &e.Code, &e.Event}
	if len(e.Console) == 1 {
		texts = append(texts, &e.Console[0])
	}
	longest := slices.MaxFunc(texts, func(a, b *string) int { return cmp.Compare(len(*a), len(*b)) })
	if len(*longest) < 2 {
		return false
	}
	*longest = strings.ToValidUTF8((*longest)[:len(*longest)/2], "")
	return true
}

// parse returns the whole records of a file, oldest first. One that is not in the slot
// of its number was put there by somebody else.
func parse(data []byte) []noted {
	var found []noted
	for n := range slots {
		if n*slot >= len(data) {
			break
		}
		text := data[n*slot : min((n+1)*slot, len(data))]
		if r, ok := decode(text); ok && r.Seq%slots == uint64(n) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b noted) int { return cmp.Compare(a.Seq, b.Seq) })
	return found
}

func decode(text []byte) (r noted, ok bool) {
	line, _, ended := bytes.Cut(text, []byte("\n"))
	sum, body, parted := bytes.Cut(line, []byte(" "))
	if !ended || !parted || fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)) != string(sum) {
		return r, false
	}
	// The loader's agent and the layer's write the same file, and either may be older.
	return r, json.Unmarshal(body, &r) == nil && r.Seq != math.MaxUint64
}

// Lines of the kernel's log that go into an event, and how much of each.
const (
	maxLines = 24
	maxLine  = 160
)

// Console returns the last lines of the kernel's log, /dev/kmsg, in the form that
// dmesg(1) prints. Who may not read it gets none.
func Console(kmsg string) []string {
	fd, err := unix.Open(kmsg, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd) // only read
	var lines []string
	for buf := make([]byte, 8192); ; {
		n, err := unix.Read(fd, buf) // one record, see Documentation/ABI/testing/dev-kmsg
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // it was overwritten meanwhile
			continue
		case err != nil || n <= 0:
			return lines
		}
		if line, ok := kmsgLine(string(buf[:n])); ok {
			lines = append(lines, line)
			lines = lines[max(0, len(lines)-maxLines):] // an event has no more room
		}
	}
}

// kmsgLine is the text of a record, "6,339,5140900,-;NET: Registered", and its time.
func kmsgLine(record string) (string, bool) {
	head, text, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return "", false
	}
	micros, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n") // then what it is about
	return short(fmt.Sprintf("[%5d.%06d] %s", micros/1e6, micros%1e6, text)), true
}

func short(line string) string {
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "")
	}
	return line
}
