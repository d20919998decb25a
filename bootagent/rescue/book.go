// SPDX-License-Identifier: Apache-2.0

// Package rescue keeps who is let into a node, and by which code the next one is: the loader
// and the running node share the book, which is in memory and ends with the boot.
//
// A code is new at each boot and after each use, so a statement is obeyed once, and never
// after a restart of the machine. What it opens lasts by the kernel's own count from when it
// was accepted: neither a clock that is set back nor a restart of the agent prolongs it. Which
// statement counts is decided by package oci/trust/rescue; doors are opened by package rescue/letin.
package rescue

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// MaxWrong is how many statements for other codes a book remembers. Further ones are decided about
// all the same: a replay of those of earlier boots shuts nobody out, and a code is too long to be
// guessed by what a node looks at.
const MaxWrong = 16

// Book holds a node's rescue record of this boot. It is written before anything is opened.
type Book struct {
	Boot  string   `json:"boot"`            // id of this boot of the kernel
	Code  string   `json:"code"`            // that the node shows
	Wrong []string `json:"wrong,omitempty"` // statements for other codes, each by its identity
	Last  string   `json:"last,omitempty"`  // the statement that was obeyed last
	Times int      `json:"times,omitempty"`
	Open  *Open    `json:"open,omitempty"`

	// Able says whether what a statement names can be opened here; nil: all of it can. One that
	// cannot waits for who can.
	Able func(spec.Rescue) bool `json:"-"`

	file  string
	rules rules
}

// Open is a statement that was obeyed. Moments are counted by the kernel from its start.
type Open struct {
	Reason  string        `json:"reason"`
	Signed  []string      `json:"signed"` // ids of the keys
	SSHKeys []string      `json:"sshKeys,omitempty"`
	Console bool          `json:"console,omitempty"`
	At      time.Time     `json:"at"` // by the wall clock, for people alone
	From    time.Duration `json:"from"`
	Until   time.Duration `json:"until"`
	Getty   string        `json:"getty,omitempty"`   // unit that had the console before
	Trouble string        `json:"trouble,omitempty"` // why not all of it is open
}

// Opens are the words for what it opens.
func (o *Open) Opens() (words []string) {
	if len(o.SSHKeys) > 0 {
		words = append(words, "ssh")
	}
	if o.Console {
		words = append(words, "console")
	}
	return words
}

// Left is for how long it is open yet, 0 where it is over.
func (o *Open) Left(up time.Duration) time.Duration {
	if o == nil || whole.open.Run(moment{o, up}) != nil {
		return 0
	}
	return o.Until - up
}

// Read reads the book of a boot; root is the prefix of a test. Of another boot, and where there
// is none, it is empty and shows no code.
func Read(root, boot string) (*Book, error) { return read(root, boot, whole) }

func read(root, boot string, r rules) (*Book, error) {
	b := &Book{file: filepath.Join(root, paths.RunRescue), rules: r}
	data, err := os.ReadFile(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", b.file, err)
	}
	if r.book.Run(found{b, boot}) != nil {
		return &Book{file: b.file, rules: r}, nil
	}
	return b, nil
}

// Begin reads the book of a boot, and makes one with a code where there is none. One that
// cannot be read does not count: what it had open is over.
func Begin(root, boot string) (*Book, error) { return begin(root, boot, whole) }

func begin(root, boot string, r rules) (*Book, error) {
	b, err := read(root, boot, r)
	if err != nil {
		b = &Book{file: filepath.Join(root, paths.RunRescue), rules: r}
	}
	if b.Code != "" {
		return b, nil
	}
	b.Boot, b.Code = boot, spec.NewCode()
	return b, b.Save()
}

// Save writes the book, for root alone.
func (b *Book) Save() error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return durable.WriteFile(b.file, data, 0o600)
}

// ErrKnown is for a statement that was looked at before.
var ErrKnown = errors.New("this statement was looked at before")

// ErrNotHere is for a statement that names nothing that can be opened here.
var ErrNotHere = errors.New("nothing that it names can be opened here")

// Offer decides about a statement, and notes that it is obeyed, and its code used, before the
// caller opens anything. One for another code is remembered, up to [MaxWrong].
func (b *Book) Offer(c trust.Candidate, n rescue.Node, up time.Duration) (*Open, error) {
	digest := identity(c.Document)
	if err := b.rules.offer.Run(offered{b, digest}); err != nil {
		return nil, err
	}
	n.Code = b.Code
	a, err := n.Accept(c)
	if refusal.Of(err) == refusal.WrongCode && len(b.Wrong) < MaxWrong {
		b.Wrong = append(b.Wrong, digest)
		return nil, errors.Join(err, b.Save())
	}
	if err != nil {
		return nil, err
	}
	if b.Able != nil && !b.Able(a.Rescue) {
		return nil, ErrNotHere
	}
	next := *b
	next.Last, next.Times = digest, b.Times+1
	if err := b.rules.used.Run(&next); err != nil {
		return nil, err
	}
	next.Open = &Open{Reason: a.Reason, Signed: a.Signed, SSHKeys: a.SSHKeys, Console: a.Console,
		At: time.Now().UTC().Truncate(time.Second), From: up, Until: up + time.Duration(a.Lasts)*time.Second}
	if b.Open != nil {
		next.Open.Getty = b.Open.Getty // what had the console before all that
	}
	if err := next.Save(); err != nil {
		return nil, fmt.Errorf("nothing is opened, for it cannot be kept: %w", err)
	}
	*b = next
	return b.Open, nil
}

// identity is the digest of a statement without the name that it is for: an operator signs one for
// each name by which the machine asks, and they are one statement to the machine.
func identity(document []byte) string {
	var r spec.Rescue
	if _, err := spec.DecodeKnown(document, &r); err != nil {
		return oci.Digest(document) // it is refused, which says why
	}
	r.Node = ""
	data, _ := spec.Encode(r) // it came from such an encoding
	return oci.Digest(data)
}

// Withdraw ends what is open where a key that signed it counts no more: it was revoked. Sessions
// read the book, so it is written before anything is shut.
func (b *Book) Withdraw(keys spec.Role, up time.Duration) error {
	if b.Open.Left(up) == 0 {
		return nil
	}
	var ids []string
	if known, err := sign.ParsePublics(keys.Keys); err == nil { // else none counts
		ids = plain.Each(known, sign.Verifier.ID)
	}
	if slices.ContainsFunc(b.Open.Signed, func(id string) bool { return !slices.Contains(ids, id) }) {
		b.Open.Until = up
		return b.Save()
	}
	return nil
}

// Status returns the rescue part of the node's status, without the code.
func (b *Book) Status(up time.Duration) *spec.RescueStatus {
	s := &spec.RescueStatus{Wrong: len(b.Wrong), Times: b.Times}
	o := b.Open
	if o == nil {
		return s
	}
	left := o.Left(up)
	s.Open, s.Opens, s.Reason, s.Keys, s.Since, s.Trouble = left > 0, o.Opens(), o.Reason, o.Signed, o.At, o.Trouble
	s.Left = int64((left + time.Second - 1) / time.Second)
	return s
}

// rules hold the checks that a book adds to those of package oci/trust/rescue: once, and not for
// ever. Tests take some out, and want an attack to succeed.
type rules struct {
	book  check.List[found]   // a book that is there is taken for this one
	offer check.List[offered] // a statement is looked at
	used  check.List[*Book]   // what one that is obeyed changes
	open  check.List[moment]  // what was opened is open
}

// found is a book, and the boot that it was found in.
type found struct {
	*Book
	boot string
}

// offered is a statement by its digest, and the book of before.
type offered struct {
	*Book
	digest string
}

// moment holds an opened statement, and the kernel's count.
type moment struct {
	*Open
	up time.Duration
}

// errOver is for what is open no more, or in another boot.
var errOver = errors.New("it is over")

var whole = rules{
	book: check.List[found]{{Name: "book: of this boot", OK: func(f found) error { return unless(f.Boot == f.boot, errOver) }}},
	offer: check.List[offered]{
		{Name: "offer: it is new", OK: func(o offered) error {
			return unless(o.digest != o.Last && !slices.Contains(o.Wrong, o.digest), ErrKnown)
		}},
	},
	used: check.List[*Book]{{Name: "used: another code is shown from now on",
		OK: func(b *Book) error { b.Code = spec.NewCode(); return nil }}},
	open: check.List[moment]{
		{Name: "open: since this boot", OK: func(m moment) error { return unless(m.up >= m.From, errOver) }},
		{Name: "open: by the kernel's count", OK: func(m moment) error { return unless(m.up < m.Until, errOver) }},
	},
}

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// Media looks for statements on CDs, and on sticks that were written as such: file systems of
// ISO 9660 with the label [paths.RescueLabel] and one file. They are read here and not mounted:
// who puts a medium into a machine is to reach as little of its kernel as can be.
type Media struct {
	Sys, Dev string // /sys and /dev

	seen string
}

// News returns the statements on media, where a medium came or went since the last time. What is
// no such medium, or none that can be read, is passed over.
func (m *Media) News() (found []trust.Candidate) {
	files, _ := filepath.Glob(filepath.Join(m.Sys, "block/*")) // the pattern is valid
	var now strings.Builder
	var names []string
	for _, file := range files {
		name := filepath.Base(file)
		size, _ := os.ReadFile(file + "/size") // one that has gone reads as nothing
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.TrimSpace(string(size)) == "0" {
			continue
		}
		change, _ := os.ReadFile(file + "/diskseq") // before Linux 5.15 there is none, and the size has to do
		fmt.Fprintf(&now, "%s %s %s\n", name, size, change)
		names = append(names, name)
	}
	if now.String() == m.seen {
		return nil
	}
	m.seen = now.String()
	for _, name := range names {
		if c, err := onMedium(filepath.Join(m.Dev, name)); err == nil {
			found = append(found, c)
		}
	}
	return found
}

// Again has the next look read all media: what came of this one could not be kept.
func (m *Media) Again() { m.seen = "" }

func onMedium(device string) (trust.Candidate, error) {
	f, err := os.Open(device)
	if err != nil {
		return trust.Candidate{}, err
	}
	defer f.Close() // only read
	data, err := readISO(f)
	if err != nil {
		return trust.Candidate{}, err
	}
	return trust.LoadRescue(data)
}

// Of ECMA-119, what is needed to find one file in the root folder.
const (
	sector   = 2048
	volumeAt = 16 * sector // primary volume descriptor
	labelAt  = 40          // in it
	rootAt   = 156         // in it: the root folder's record
	maxRoot  = 64 << 10    // bytes of the root folder
)

var errNotRescue = errors.New("it carries no statement")

// readISO returns the statement of a medium.
func readISO(r io.ReaderAt) ([]byte, error) {
	volume := make([]byte, sector)
	if _, err := r.ReadAt(volume, volumeAt); err != nil {
		return nil, err
	}
	if string(volume[:7]) != "\x01CD001\x01" || strings.TrimRight(string(volume[labelAt:labelAt+32]), " \x00") != paths.RescueLabel {
		return nil, errNotRescue
	}
	folder, err := extent(r, volume[rootAt:rootAt+34], maxRoot)
	if err != nil {
		return nil, err
	}
	for at := 0; at < len(folder); {
		length := int(folder[at])
		if length == 0 { // the next record is in the next sector
			at = (at/sector + 1) * sector
			continue
		}
		if length < 34 || at+length > len(folder) || 33+int(folder[at+32]) > length {
			return nil, errNotRescue
		}
		record := folder[at : at+length]
		name, _, _ := strings.Cut(string(record[33:33+int(record[32])]), ";")
		if record[25]&2 == 0 && strings.EqualFold(strings.TrimSuffix(name, "."), paths.RescueFile) {
			return extent(r, record, trust.MaxSaved)
		}
		at += length
	}
	return nil, errNotRescue
}

// extent reads what a record of a folder is about.
func extent(r io.ReaderAt, record []byte, limit int) ([]byte, error) {
	at, size := binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:])
	if size > uint32(limit) {
		return nil, fmt.Errorf("%w: %d bytes", errNotRescue, size)
	}
	data := make([]byte, size)
	_, err := r.ReadAt(data, int64(at)*sector)
	if errors.Is(err, io.EOF) && size == 0 {
		err = nil
	}
	return data, err
}

// Terminal names the device behind /dev/console, as in ttyS0: the last that the kernel was told.
// tty0 is the virtual console that is shown, of which the first has a getty.
func Terminal(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "/sys/class/tty/console/active"))
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(data))
	if len(words) == 0 || strings.Contains(words[len(words)-1], "/") {
		return "", fmt.Errorf("the kernel has no console: %q", data)
	}
	if last := words[len(words)-1]; last != "tty0" {
		return last, nil
	}
	return "tty1", nil
}
