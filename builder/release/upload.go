// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// sayEvery is how often an upload says how far it has come.
const sayEvery = 200 * time.Millisecond

// upload is the pushing of one variant's blobs, as far as they had to be read.
type upload struct {
	variant string
	say     func(builder.Event)

	mu       sync.Mutex // a registry's client reads where it likes
	read, of int64
	said     time.Time
}

// opener opens a file that is counted while it is read. One that is read again,
// because the registry wanted it again, counts once.
func (u *upload) opener(path, title string) registry.Opener {
	if u.say == nil {
		return func() (io.ReadCloser, error) { return os.Open(path) }
	}
	u.mu.Lock()
	begin := u.read
	u.mu.Unlock()
	return func() (io.ReadCloser, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		u.set(begin)
		return &counted{File: f, upload: u, title: title}, nil
	}
}

func (u *upload) set(read int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read = read
}

type counted struct {
	*os.File
	upload *upload
	title  string
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	u := c.upload
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read += int64(n)
	if now := time.Now(); now.Sub(u.said) >= sayEvery {
		u.said = now
		u.say(builder.Event{Variant: u.variant, Step: "layer", State: "push", Bytes: min(u.read, u.of), OfBytes: u.of, Text: c.title})
	}
	return n, err
}

// written adds to what an archive does not have where the site asks for it.
func written(s *site.Site, err error) error {
	var at report.Pos
	var unknown *apt.Unknown
	var none *apt.NoSuite
	switch {
	case errors.As(err, &unknown):
		at = s.PackageAt(unknown.Package, unknown.Version)
	case errors.As(err, &none):
		at = s.SuiteAt(none.Suite)
	}
	if at == (report.Pos{}) {
		return err
	}
	return fmt.Errorf("%s: %w", at, err)
}
