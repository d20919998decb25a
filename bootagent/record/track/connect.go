// SPDX-License-Identifier: Apache-2.0

package track

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Files in the directory of credentials, each optional, readable by root only. They
// are installed with the node; they are never fetched. In the directory of
// the agent's own secrets are those that came with an overlay.
const (
	authFile    = "auth.json"  // in the form of docker's config.json
	clientCert  = "client.crt" // for mTLS
	clientKey   = "client.key"
	ReportToken = "report.token" // what the fleet's service asks of this node
	ReportAuth  = "report.json"  // with which this node writes reports to a registry; what it reads with never writes
)

// OwnSecrets returns which secrets of an overlay are the agent's own, by the names of their files.
func OwnSecrets(o *spec.Overlay) map[string]string {
	if o.Agent == nil || o.Agent.Credentials == nil {
		return nil
	}
	own, report := map[string]string{}, ReportToken
	if o.Agent.Report != nil && o.Agent.Report.Registry != "" {
		report = ReportAuth
	}
	for file, secret := range map[string]string{authFile: o.Agent.Credentials.Registry, report: o.Agent.Credentials.Report} {
		if secret != "" {
			own[file] = secret
		}
	}
	return own
}

// Way is how a registry is reached. The zero value has no credentials.
type Way struct {
	Credentials string        // directory, which need not exist
	Own         string        // directory of those that came as secrets, which are tried first; it need not exist
	Clock       trust.Clock   // for certificates
	Silence     time.Duration // how long a server may say nothing; 0 is 30 s
	Agent       string        // what is said to servers about the program that asks, see [UserAgent]
	Dial        pull.Dial     `json:"-"` // connects; nil is the machine's own way, which is that of another process, too
}

// UserAgent says which program asks, and for which node or, as long as that is not
// known, for which machine: so a server's log can be read. It is nobody's promise.
func UserAgent(version string, id trust.Identity) string {
	as := ""
	switch {
	case oci.ValidTag(id.Node):
		as = " (node " + id.Node + ")"
	case len(id.MACs) > 0:
		as = " (mac " + id.MACs[0] + ")"
	}
	if !oci.ValidTag(version) { // a header has one line
		version = "unknown"
	}
	return "caisson-agent/" + version + as
}

// Open reaches the registry and the mirrors of a bootstrap. Where it refuses the credentials that
// came as a secret, those that the node was installed with are tried, at each place.
func Open(b spec.Bootstrap, way Way) (oci.Source, error) {
	files := way.Files(authFile)
	if len(files) < 2 {
		return open(b, way, files[0])
	}
	var list []oci.Source
	for _, place := range append([]string{b.Registry}, b.Mirrors...) {
		at := b
		at.Registry, at.Mirrors = place, nil
		s, err := open(at, way, files[1])
		if err != nil {
			return nil, err
		}
		both := &either{second: s}
		both.first, both.why = open(at, way, files[0])
		list = append(list, both)
	}
	return oci.Places(list...), nil
}

func open(b spec.Bootstrap, way Way, auth string) (oci.Source, error) {
	ref, err := oci.ParseRef(b.Registry)
	if err != nil {
		return nil, err
	}
	return pull.Open(ref, Options(b, way, auth))
}

// Files returns where a file with credentials is, in the order in which they are tried: the
// last one is of those that the node was installed with, "" where it has none.
func (w Way) Files(name string) (list []string) {
	if own := there(w.Own, name); own != "" {
		list = append(list, own)
	}
	return append(list, there(w.Credentials, name))
}

// there returns a file in a directory, "" where there is none.
func there(dir, name string) string {
	name = filepath.Join(dir, name)
	if _, err := os.Lstat(name); dir == "" || err != nil {
		return ""
	}
	return name
}

// Options say how the registry of a bootstrap is reached with the credentials of a file,
// "" for none.
func Options(b spec.Bootstrap, way Way, auth string) pull.Options {
	now, sure := way.Clock.Ticking()
	return pull.Options{
		PlainHTTP: b.PlainHTTP, CAs: b.CAs, Mirrors: b.Mirrors, Proxy: b.Proxy,
		AuthFile: auth, CertFile: there(way.Credentials, clientCert), KeyFile: there(way.Credentials, clientKey),
		Timeout: way.Silence, UserAgent: way.Agent, Dial: way.Dial, Now: now, AtLeast: !sure,
	}
}

// either is one place with two credentials: the second ones are for where the first are refused,
// and for nothing else, or a place that does not answer would be waited for twice.
type either struct {
	first, second oci.Source
	why           error // there is no first, since its credentials cannot be read
}

// Denied reports whether credentials were refused, or asked for where there are none.
func Denied(err error) bool {
	var status *pull.StatusError
	return errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

func eitherOf[T any](e *either, ask func(oci.Source) (T, error)) (T, error) {
	why := e.why
	if why == nil {
		got, err := ask(e.first)
		if err == nil || !Denied(err) {
			return got, err
		}
		why = err
	}
	got, err := ask(e.second)
	if err != nil && Denied(err) {
		err = errors.Join(fmt.Errorf("by the credentials that came as a secret: %w", why), err)
	}
	return got, err
}

// Manifest implements oci.Source.
func (e *either) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	return eitherOf(e, func(s oci.Source) (oci.Response, error) { return s.Manifest(ctx, repo, reference, etag) })
}

// Blob implements oci.Source.
func (e *either) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	return eitherOf(e, func(s oci.Source) (io.ReadCloser, error) { return s.Blob(ctx, repo, d, offset) })
}

// Ranges implements oci.Ranger.
func (e *either) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	return eitherOf(e, func(s oci.Source) (io.ReadCloser, error) {
		ranger, ok := s.(oci.Ranger)
		if !ok {
			return nil, refusal.New(refusal.Range, "%s: this place serves no parts", d.Digest)
		}
		return ranger.Ranges(ctx, repo, d, spans)
	})
}
