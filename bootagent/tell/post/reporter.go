// SPDX-License-Identifier: Apache-2.0

package post

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

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
