// SPDX-License-Identifier: Apache-2.0

package post

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Sender sends a signed report. An error that is [ErrRefused] says that the report will
// never be taken; any other, that nobody answered.
type Sender func(ctx context.Context, to spec.Reporting, raw []byte) error

// ErrRefused is wrapped by a [Sender] where a service does not take a report.
var ErrRefused = errors.New("it was not accepted")

// Reporter signs and sends. One process at a time has one open.
type Reporter struct {
	Post Sender
	Say  func(format string, args ...any)
	TPM  func() string // as [spec.Report] has it; nil says nothing

	grade    spec.KeyGrade
	key      *ecdsa.PrivateKey
	id       string
	numbers  *sequence
	spool    *spool
	told     [sha256.Size]byte // what the last report said
	made     time.Time         // when that was
	due      time.Time         // when the next one is made though nothing has changed
	failures int
	again    time.Time // when the next attempt to send is made
	now      func() time.Time
}

// Names in the directory of reports. The key is in that of the node's identity, which
// is set aside with the fleet that knows it.
const (
	sequenceName = "sequence"
	spoolName    = "spool"
	keyName      = "identity/report.pem"
)

func keyFile(dir string) string { return filepath.Join(filepath.Dir(dir), keyName) }

// OpenReports opens the directory of reports in a node's state, and makes the key. grade says
// what becomes of the directory at the next boot.
func OpenReports(dir string, grade spec.KeyGrade, post Sender, say func(string, ...any)) (*Reporter, error) {
	return openAt(dir, grade, post, say, time.Now)
}

func openAt(dir string, grade spec.KeyGrade, post Sender, say func(string, ...any), now func() time.Time) (*Reporter, error) {
	r := &Reporter{Post: post, Say: say, grade: grade, now: now}
	for _, folder := range []string{dir, filepath.Dir(keyFile(dir))} {
		if err := ownfiles.Folder(folder); err != nil {
			return nil, fmt.Errorf("open the folder of reports: %w", err)
		}
	}
	var err error
	if r.key, err = ensureKey(keyFile(dir), say); err != nil {
		return nil, err
	}
	r.id = sign.VerifierOf(r.key).ID()
	if r.numbers, err = openSequence(filepath.Join(dir, sequenceName), now()); err != nil {
		return nil, err
	}
	r.spool, err = openSpool(filepath.Join(dir, spoolName))
	return r, err
}

// Look takes a report of what is true now. Where it says something new, or its time
// has come, it is signed; what waits is sent, unless nobody answered lately. News are
// on the disk before Look returns, unless they were taken. It reports whether there
// were news.
func (r *Reporter) Look(ctx context.Context, one *spec.Report, to spec.Reporting) (news bool, err error) {
	if r.TPM != nil && one.Mode != spec.ModeAttached {
		one.TPM = r.TPM()
	}
	says, err := fingerprint(*one, to)
	if err != nil {
		return false, err
	}
	now := r.now()
	news = says != r.told && (to.Registry == "" || !now.Before(r.made.Add(storeGap)))
	if news || !now.Before(r.due) {
		if err := r.seal(*one, news); err != nil {
			return news, err
		}
		every := time.Duration(to.Interval) * time.Second
		r.told, r.made, r.due = says, now, now.Add(every-every/8+rand.N(every/4+1)) // a fleet that boots together must not report together
	}
	return news, r.send(ctx, to)
}

// storeGap is the least time from one report in a registry to the next: a node whose
// health goes to and fro must not fill it.
const storeGap = 5 * time.Minute

// fingerprint returns the digest of a report without its number, time, key and grade. In a
// registry a report is not
// cheap: there only what a node's condition follows from is news.
func fingerprint(one spec.Report, to spec.Reporting) (sum [sha256.Size]byte, err error) {
	if to.Registry != "" {
		state := func(a spec.Axis) spec.Axis { return spec.Axis{State: a.State} }
		var proof spec.Axis
		if one.Axes.Unproved() {
			proof.State = "unproved" // what else it is at is not news
		}
		one = spec.Report{BootID: one.BootID, Overlay: one.Overlay, Layer: one.Layer, Axes: spec.Axes{
			Tracking: state(one.Axes.Tracking), Sync: state(one.Axes.Sync), Health: state(one.Axes.Health), Activity: proof}}
	}
	one.Seq, one.Time, one.Key, one.Grade = 0, time.Time{}, "", ""
	data, err := spec.Encode(one)
	return sha256.Sum256(data), err
}

func (r *Reporter) seal(one spec.Report, news bool) (err error) {
	one.Key, one.Grade, one.Time = r.id, r.grade, r.now().UTC().Truncate(time.Second)
	if one.Seq, err = r.numbers.take(); err != nil {
		return err
	}
	data, err := one.Encode()
	if err != nil {
		return err
	}
	raw, err := sign.SignReport(r.key, data)
	if err != nil {
		return err
	}
	return r.spool.add(sealed{seq: one.Seq, raw: raw, news: news})
}

// Between attempts where nobody answers.
const (
	firstPause = 30 * time.Second
	lastPause  = 10 * time.Minute
)

// send sends what waits, the oldest first, until somebody does not answer.
func (r *Reporter) send(ctx context.Context, to spec.Reporting) error {
	if len(r.spool.list) == 0 {
		return nil
	}
	if r.now().Before(r.again) {
		return r.spool.save()
	}
	if to.Registry != "" { // where each report takes the place of the one before
		if err := r.spool.bound(1); err != nil {
			return err
		}
	}
	for len(r.spool.list) > 0 {
		err := r.Post(ctx, to, r.spool.list[0].raw)
		switch {
		case errors.Is(err, ErrRefused):
			r.Say("%v", err)
		case err != nil:
			if r.failures == 0 && ctx.Err() == nil {
				r.Say("report to %s: %v", to, err)
			}
			pause := min(lastPause, firstPause<<min(r.failures, 10))
			r.again = r.now().Add(pause/2 + rand.N(pause))
			r.failures++
			return r.spool.save()
		case r.failures > 0:
			r.Say("report to %s: it answers again", to)
		}
		r.failures, r.again = 0, time.Time{}
		if err := r.spool.drop(); err != nil {
			return err
		}
	}
	return nil
}

// spoolMax is how many reports are kept while nobody answers: the oldest goes first.
const spoolMax = 64

// sealed is a signed report that was not taken yet.
type sealed struct {
	seq   uint64
	raw   []byte
	news  bool // it says something else than the one before
	saved bool // it is on the disk
}

// spool holds them in the order of their numbers.
type spool struct {
	dir  string
	list []sealed
}

func (s *spool) name(seq uint64) string { return filepath.Join(s.dir, fmt.Sprintf("%016d.json", seq)) }

// openSpool reads what an earlier process could not send. What cannot be read is put
// away: the next report says all that is true then.
func openSpool(dir string) (*spool, error) {
	if err := ownfiles.Folder(dir); err != nil {
		return nil, fmt.Errorf("open the spool of reports: %w", err)
	}
	names, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("open the spool of reports: %w", err)
	}
	s := &spool{dir: dir}
	for _, entry := range slices.Backward(names) { // of more than fit the newest, and no more are read
		file := filepath.Join(dir, entry.Name())
		var seq uint64
		_, err := fmt.Sscanf(entry.Name(), "%016d.json", &seq)
		whole := err == nil && s.name(seq) == file
		var raw []byte
		if whole = whole && len(s.list) < spoolMax; whole {
			raw, err = ownfiles.ReadFile(file, sign.MaxReport)
		}
		if !whole || err != nil || !strings.HasPrefix(string(raw), "{") {
			if err := os.RemoveAll(file); err != nil { // what a cut left of a write, or somebody's, or the oldest
				return nil, fmt.Errorf("open the spool of reports: %w", err)
			}
			continue
		}
		s.list = append(s.list, sealed{seq, raw, true, true})
	}
	slices.Reverse(s.list)
	return s, nil
}

// add puts a report last. One without news takes the place of such a one before it.
func (s *spool) add(one sealed) error {
	if n := len(s.list); n > 0 && !one.news && !s.list[n-1].news {
		s.list[n-1] = one // which was not saved
		return nil
	}
	s.list = append(s.list, one)
	return s.bound(spoolMax)
}

// bound forgets the oldest reports where there are more than most.
func (s *spool) bound(most int) error {
	for len(s.list) > most {
		if err := s.drop(); err != nil {
			return err
		}
	}
	return nil
}

// drop forgets the first report.
func (s *spool) drop() error {
	first := s.list[0]
	if first.saved {
		if err := durable.Remove(s.name(first.seq)); err != nil {
			return fmt.Errorf("forget a report: %w", err)
		}
	}
	s.list = s.list[1:]
	return nil
}

// save puts news on the disk that are not there. What says nothing new can be said
// again at any time.
func (s *spool) save() error {
	for i := range s.list {
		one := &s.list[i]
		if one.saved || !one.news {
			continue
		}
		if err := durable.WriteFile(s.name(one.seq), one.raw, 0o600); err != nil {
			return fmt.Errorf("keep a report: %w", err)
		}
		one.saved = true
	}
	return nil
}

// sequence gives out numbers that rise for the life of a key, so that no report is
// taken twice. It writes once for a block of them: a report costs the disk nothing.
//
// It begins at the time in milliseconds where that is more: then a disk that was put
// back to an earlier state, or takes no writes, does not repeat what was sent.
type sequence struct {
	file string
	next uint64
	end  uint64 // all below may be given out
}

const block = 1 << 12

func openSequence(file string, now time.Time) (*sequence, error) {
	s := &sequence{file: file, next: 1}
	data, err := ownfiles.ReadFile(file, 64)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the number of the last report: %w", err)
	default:
		n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 53)
		if err != nil {
			return nil, fmt.Errorf("read the number of the last report: %s: %w", file, err)
		}
		s.next = n
	}
	s.next = max(s.next, uint64(max(0, now.UnixMilli())))
	s.end = s.next
	return s, nil
}

func (s *sequence) take() (uint64, error) {
	if s.next == s.end {
		end := s.end + block
		if err := durable.WriteFile(s.file, fmt.Appendln(nil, end), 0o600); err != nil {
			return 0, fmt.Errorf("keep the number of the last report: %w", err)
		}
		s.end = end
	}
	s.next++
	return s.next - 1, nil
}
