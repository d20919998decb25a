// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/trust"
)

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
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Parse reads what [Chain.Marshal] wrote. The first line is what the reader trusts; each
// other one must follow from the one before.
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
