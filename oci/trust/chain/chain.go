// SPDX-License-Identifier: Apache-2.0

// Package chain follows fleet:keys, the chain of documents that say which keys count.
//
// A reader begins with a version that it has from a place it trusts: site.cpio, or a file
// beside the site. Each next version must be signed by enough root keys of the version
// before and by enough of its own, and names the digest of the document before it; so a
// stolen operator's key changes nothing here, and nobody can skip, fork or shorten the
// chain. Versions do not expire: a machine that was off for years walks them all.
//
// The package decides which keys count. What they may sign is decided by package trust,
// with the bootstrap that [Chain.Bootstrap] returns. The agent's stages, the publisher and
// the fleet service follow the chain by this package and no other way.
package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// MaxSteps bounds a walk, and with it what a registry can make a node read.
const MaxSteps = 256

// Link is one accepted version.
type Link struct {
	Keys      spec.Keys
	Digest    string          // of the document
	Candidate trust.Candidate // with its signatures; without any for the version that a chain begins with
	LeftOut   []string        // paths of keys of a later release, which do not act
}

// Chain is the versions that a reader has accepted, oldest first. Each is the next after
// the one before.
type Chain struct {
	links []Link
	rules checkList // nil is all checks
}

// Begin returns the chain that begins with the document of a version that the caller
// trusts: it is checked for sense, not for signatures.
func Begin(anchor []byte) (*Chain, error) {
	l := Link{Digest: oci.Digest(anchor), Candidate: trust.Candidate{Document: anchor}}
	s := &step{candidate: l.Candidate}
	if err := unsigned.Run(s); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	l.Keys, l.LeftOut = s.doc, s.leftOut
	return &Chain{links: []Link{l}}, nil
}

// Precede puts before the oldest version the one whose digest it names. What was accepted
// while that one counted can be verified by it; nothing new ever is.
func (c *Chain) Precede(earlier trust.Candidate) error {
	oldest := c.links[0]
	digest := oci.Digest(earlier.Document)
	if digest != oldest.Keys.Previous {
		return refusal.New(refusal.Replay, "version %d of the keys follows %.80q, not %s", oldest.Keys.Version, oldest.Keys.Previous, digest)
	}
	l := Link{Digest: digest, Candidate: earlier}
	if _, err := spec.DecodeKnown(earlier.Document, &l.Keys); err != nil {
		return refusal.New(refusal.Keys, "%w", err)
	}
	c.links = slices.Insert(c.links, 0, l)
	return nil
}

// Newest returns the version that counts.
func (c *Chain) Newest() Link { return c.links[len(c.links)-1] }

// Version returns the number of the version that counts.
func (c *Chain) Version() uint64 { return c.Newest().Keys.Version }

// Links returns the accepted versions, oldest first.
func (c *Chain) Links() []Link { return slices.Clone(c.links) }

// Fork returns a chain that goes its own way from here.
func (c *Chain) Fork() *Chain { return &Chain{links: slices.Clone(c.links), rules: c.rules} }

// Add takes a candidate as the next version, or refuses it.
func (c *Chain) Add(next trust.Candidate) (Link, error) {
	from := c.Newest()
	checks := c.rules
	if checks == nil {
		checks = all
	}
	s := &step{from: from, candidate: next, digest: oci.Digest(next.Document)}
	if err := checks.Run(s); err != nil {
		return Link{}, fmt.Errorf("keys after version %d: %w", from.Keys.Version, err)
	}
	l := Link{Keys: s.doc, Digest: s.digest, Candidate: next, LeftOut: s.leftOut}
	c.links = append(c.links, l)
	return l, nil
}

// ErrLong is returned by a walk that found another version after [MaxSteps].
var ErrLong = errors.New("the chain of keys goes on")

// Walk asks the places of src for the versions after the newest one until there is none,
// takes each from the first place that gives one which is accepted, and hands it to keep
// before it counts. What it took stays taken when a later one is refused or cannot be
// had: the caller has then the newest version that it could reach, and the error.
func (c *Chain) Walk(ctx context.Context, src oci.Source, keep func(Link) error) error {
	for step := 0; ; step++ {
		l, err := trust.Keys(ctx, src, c.Version()+1, c.Add)
		if oci.Missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if step == MaxSteps {
			err = fmt.Errorf("%w after %d versions", ErrLong, MaxSteps)
		} else {
			err = keep(l)
		}
		if err != nil {
			c.links = c.links[:len(c.links)-1]
			return err
		}
	}
}

// Bootstrap returns b with the keys of the newest version.
func (c *Chain) Bootstrap(b spec.Bootstrap) spec.Bootstrap { return With(b, c.Newest().Keys) }

// With returns b with the keys of a version.
func With(b spec.Bootstrap, k spec.Keys) spec.Bootstrap {
	b.Keys, b.Threshold, b.EpochKeys = k.Roles.Operator.Keys, k.Roles.Operator.Threshold, k.Roles.Epoch.Keys
	return b
}

// Behind returns the refusal of a reader whose newest version is older than the one that
// fleet:current names: somebody keeps versions from it, so nothing new is accepted. nil
// where it is not behind.
func (c *Chain) Behind(named uint64) error {
	if named <= c.Version() {
		return nil
	}
	return refusal.New(refusal.KeysBehind, "fleet:current names version %d of the keys, the newest that could be had is %d", named, c.Version())
}

// Marshal returns the chain as a file: a version a line, oldest first, each as
// [trust.Candidate.SaveKeys] encodes it. A new version adds a line.
func (c *Chain) Marshal() []byte {
	var b bytes.Buffer
	for _, l := range c.links {
		b.Write(l.Candidate.SaveKeys())
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// First returns the chain that a first version begins, which enough of its own root keys
// must have signed.
func First(c trust.Candidate) (*Chain, error) {
	one, err := Begin(c.Document)
	if err != nil {
		return nil, err
	}
	one.links[0].Candidate = c
	s := &step{candidate: c, digest: one.links[0].Digest, doc: one.links[0].Keys}
	return one, signedByItself(s)
}

// maxFile bounds the file, in bytes: a version has some KiB.
const maxFile = 64 << 20

// ReadFile is [Parse] of a file, nil where there is none: no version was made yet.
func ReadFile(name string) (*Chain, error) {
	data, err := ownfiles.ReadPublic(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	return c, fault.In(err, "%s", name)
}

// Parse reads what [Chain.Marshal] wrote. The first line holds the version that the reader trusts;
// each other one must follow from the one before.
func Parse(data []byte) (*Chain, error) {
	var c *Chain
	n := 0
	for line := range bytes.Lines(data) {
		n++
		next, err := trust.LoadKeys(bytes.TrimSuffix(line, []byte("\n")))
		switch {
		case err != nil:
		case c == nil:
			if c, err = Begin(next.Document); err == nil {
				c.links[0].Candidate = next // with what signed it, for those who have an earlier version
			}
		default:
			_, err = c.Add(next)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if c == nil {
		return nil, errors.New("it holds no version of the keys")
	}
	return c, nil
}
