// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
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
	resp, err := r.get(ctx, r.client, "", "", http.Header{}, o.patience())
	if err != nil {
		return asked, fmt.Errorf("ask %s: %w", host, err)
	}
	defer resp.Body.Close() // the status is the answer
	return asked, wantStatus(http.StatusOK)(answer{Response: resp, what: host})
}

// Login holds the credentials for one registry. The zero value is anonymous.
type Login struct {
	User, Password string
	Token          string // identity token: used as a refresh token
}

// Logins finds the credentials for host[:port], the zero Login where there are none.
type Logins func(ctx context.Context, host string) (Login, error)

// logins returns where the credentials for a registry come from. An AuthFile is
// read at once, so that a wrong one is known before anything is asked.
func (o Options) logins(host string) (Logins, error) {
	if o.AuthFile == "" && o.Logins != nil {
		return o.Logins, nil
	}
	l, err := o.Login(host)
	return func(context.Context, string) (Login, error) { return l, nil }, err
}

// Login returns the credentials for host[:port] in the options' AuthFile; a host
// that the file does not name gets none. Helper programs are never run.
func (o Options) Login(host string) (Login, error) {
	if o.AuthFile == "" {
		return Login{}, nil
	}
	data, err := ownfiles.ReadSecret(o.AuthFile)
	if err != nil {
		return Login{}, fmt.Errorf("credentials: %w", err)
	}
	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			Username      string `json:"username"`
			Password      string `json:"password"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Login{}, fmt.Errorf("credentials: %s: %w", o.AuthFile, err)
	}
	entry, ok := file.Auths[host]
	if !ok {
		return Login{}, nil
	}
	l := Login{User: entry.Username, Password: entry.Password, Token: entry.IdentityToken}
	if entry.Auth != "" {
		pair, err := base64.StdEncoding.DecodeString(entry.Auth)
		user, password, found := strings.Cut(string(pair), ":")
		if err != nil || !found {
			return Login{}, fmt.Errorf("credentials: %s: the auth of %s is not base64 of user:password", o.AuthFile, host)
		}
		l.User, l.Password = user, password
	}
	return l, nil
}
