// SPDX-License-Identifier: Apache-2.0

// Package pull opens the places that hold artifacts, a registry or a directory in
// the OCI image layout, as an [oci.Source].
//
// It is the small half of registry access, the one that the agent links: GET with
// conditions, ranges and resume, caps that are counted while reading, least rates,
// mirrors, and credentials that reach no other host. It cannot push: oci/registry
// does, through the same [Options]. What the bytes mean is for package oci and its
// callers.
//
// An answer that is not what was asked for is an error of spec/refusal, slow
// content is [ErrSlow]; any other error is one of the transport: retry.
//
// It imports the standard library, oci, spec/refusal and small packages of
// internal.
package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/access"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// Options say how a registry is reached. The zero value is HTTPS with the
// system's certificate authorities, without credentials.
type Options struct {
	PlainHTTP bool          // no TLS
	CAs       []string      // PEM; the only authorities trusted, when given
	CertFile  string        // client certificate and key for mTLS,
	KeyFile   string        // the key readable by its owner only
	AuthFile  string        // {"auths":{"host":{"auth":"base64 user:password"}}}, or "identitytoken"; readable by its owner only
	Logins    Logins        // asked when a registry wants credentials and there is no AuthFile; nil has none
	Proxy     string        // URL; empty is the environment's HTTPS_PROXY and its kin
	Mirrors   []string      // further references, asked in order when the first fails
	Timeout   time.Duration // of silence, not of the whole; 0 is 30 s
	Pace      Pace          // slower answers end; the zero value is DefaultPace
	Patience  time.Duration // for a whole manifest; 0 is 2 min
	Again     int           // how often a registry that answers 5xx is asked again, in a moment; who asks every minute needs none
	UserAgent string
	Mute      bool             // what stands in an answer that is not 2xx is not read: somebody else chose who is asked
	Now       func() time.Time // the clock for TLS certificates; nil is time.Now
	Dial      Dial             // connects; nil is the machine's own way
	AtLeast   bool             // Now is a lower bound, not a clock: a certificate may have been issued since
}

// Dial connects as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Open returns the source at ref, followed by its mirrors.
func Open(ref oci.Ref, o Options) (oci.Source, error) {
	first, err := open(ref, o)
	if err != nil || len(o.Mirrors) == 0 {
		return first, err
	}
	list := []oci.Source{first}
	for _, m := range o.Mirrors {
		ref, err := oci.ParseRef(m)
		if err != nil {
			return nil, fmt.Errorf("mirror: %w", err)
		}
		s, err := open(ref, o)
		if err != nil {
			return nil, fmt.Errorf("mirror %s: %w", m, err)
		}
		list = append(list, s)
	}
	return oci.Places(list...), nil
}

func open(ref oci.Ref, o Options) (oci.Source, error) {
	if ref.IsLayout() {
		return openLayout(ref.Layout)
	}
	return openRegistry(ref, o, wholeRegistry)
}

// Credentials for registries, and an answer that is neither yes nor "not found".
type (
	Login       = access.Login
	Logins      = access.Logins
	StatusError = access.StatusError
)

// Ping asks the registry at host[:port] whether it answers, with the options'
// credentials where it wants some. It reports whether it did. Other credentials are
// a [StatusError].
func Ping(ctx context.Context, host string, o Options) (asked bool, err error) {
	find, err := o.logins(host)
	if err != nil {
		return false, err
	}
	o.AuthFile = ""
	o.Logins = func(ctx context.Context, host string) (Login, error) {
		asked = true
		return find(ctx, host)
	}
	r, err := openRegistry(oci.Ref{Host: host}, o, wholeRegistry)
	if err != nil {
		return false, err
	}
	resp, err := r.get(ctx, question{client: r.client, header: http.Header{}, whole: o.patience()})
	if err != nil {
		return asked, fmt.Errorf("ask %s: %w", host, err)
	}
	defer resp.Body.Close() // the status is the answer
	return asked, wantStatus(http.StatusOK)(answer{Response: resp, what: host})
}

// logins returns where the credentials for a registry come from. An AuthFile is
// read at once, so that a wrong one is known before anything is asked.
func (o Options) logins(host string) (Logins, error) {
	if o.AuthFile == "" && o.Logins != nil {
		return o.Logins, nil
	}
	l, err := access.InFile(o.AuthFile, host)
	return func(context.Context, string) (Login, error) { return l, nil }, err
}

// layout reads a directory in the OCI image layout. A tag is the descriptor in
// index.json whose ref.name is "repository:tag".
type layout struct {
	root *os.Root
	mu   sync.Mutex
	seen os.FileInfo       // of index.json when tags was read
	tags map[string]string // digests
}

func openLayout(dir string) (*layout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open layout: %w", err)
	}
	if _, err := root.Stat("oci-layout"); err != nil {
		_ = root.Close() // only read
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	return &layout{root: root}, nil
}

func (l *layout) Manifest(_ context.Context, repo, reference, etag string) (oci.Response, error) {
	if err := oci.CheckName(repo, reference); err != nil {
		return oci.Response{}, err
	}
	digest := reference
	if !oci.ValidDigest(reference) {
		var err error
		if digest, err = l.resolve(repo, reference); err != nil {
			return oci.Response{}, err
		}
	}
	if etag == digest {
		return oci.Response{Digest: digest, ETag: etag, NotModified: true}, nil
	}
	raw, err := strict.ReadFileCapped(l.root, oci.BlobPath(digest), oci.MaxManifest)
	if err != nil {
		return oci.Response{}, missing(err)
	}
	if got := oci.Digest(raw); got != digest {
		return oci.Response{}, &oci.DamagedError{Err: fmt.Errorf("file of %s holds %s: the layout is damaged", digest, got)}
	}
	return oci.Response{Data: raw, Digest: digest, ETag: digest}, nil
}

func (l *layout) Blob(_ context.Context, _ string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) {
		return nil, fmt.Errorf("digest %q is not valid", d.Digest)
	}
	f, err := l.root.Open(oci.BlobPath(d.Digest))
	if err != nil {
		return nil, missing(err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close() // only read
		return nil, err
	}
	return limited{io.LimitReader(f, d.Size-offset), f}, nil
}

// Ranges reads spans of a file.
func (l *layout) Ranges(_ context.Context, _ string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) {
		return nil, fmt.Errorf("digest %q is not valid", d.Digest)
	}
	if err := oci.CheckSpans(d, spans); err != nil {
		return nil, err
	}
	f, err := l.root.Open(oci.BlobPath(d.Digest))
	if err != nil {
		return nil, missing(err)
	}
	var parts []io.Reader
	for _, s := range spans {
		parts = append(parts, io.NewSectionReader(f, s.From, s.To-s.From))
	}
	return limited{io.MultiReader(parts...), f}, nil
}

func (l *layout) resolve(repo, tag string) (digest string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.root.Stat("index.json")
	if err != nil {
		return "", err
	}
	// index.json is replaced, never changed, so another file is another content.
	if l.seen == nil || !os.SameFile(info, l.seen) || !info.ModTime().Equal(l.seen.ModTime()) {
		raw, err := strict.ReadFileCapped(l.root, "index.json", oci.MaxLayout)
		if err != nil {
			return "", missing(err)
		}
		list, err := oci.ParseLayoutIndex(raw)
		if err != nil {
			return "", err
		}
		l.seen, l.tags = info, make(map[string]string, len(list))
		for _, n := range list {
			l.tags[n.Name] = n.Digest
		}
	}
	if digest, ok := l.tags[repo+":"+tag]; ok {
		return digest, nil
	}
	return "", fmt.Errorf("%s:%s: %w", repo, tag, oci.ErrNotFound)
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", oci.ErrNotFound, err)
	}
	return err
}

// limited reads from one and closes the other.
type limited struct {
	io.Reader
	io.Closer
}
