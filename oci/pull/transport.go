// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/internal/access"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Transport returns the HTTP transport that the options describe, for the registry
// at host[:port]. It logs in there and nowhere else. oci/registry uses the same, so
// both halves reach a registry by the same rules.
func (o Options) Transport(host string) (http.RoundTripper, error) {
	base, err := o.transport(host)
	if err != nil {
		return nil, err
	}
	logins, err := o.logins(host)
	if err != nil {
		return nil, err
	}
	var sent http.RoundTripper = base
	if o.Mute {
		sent = muted{base}
	}
	return access.Over(sent, o.scheme(), host, logins, o.silence()), nil
}

// muted takes its text from an answer that is not 2xx.
type muted struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (m muted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode/100 != 2 {
		_ = resp.Body.Close() // it is not read
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp, err
}

func (o Options) scheme() string {
	if o.PlainHTTP {
		return "http"
	}
	return "https"
}

func (o Options) transport(host string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            o.Dial,
		TLSHandshakeTimeout:    o.silence(),
		ResponseHeaderTimeout:  o.silence(),
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        5 * time.Second, // a registry has many clients, and each asks rarely
		DisableCompression:     true,            // content is hashed as it is sent
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, Time: o.Now},
	}
	if o.Dial == nil {
		t.DialContext = (&net.Dialer{Timeout: o.silence()}).DialContext
	}
	if o.Proxy != "" {
		u, err := url.Parse(o.Proxy)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("proxy %q is not a URL", o.Proxy)
		}
		t.Proxy = http.ProxyURL(u)
	}
	if len(o.CAs) > 0 {
		pool := x509.NewCertPool()
		for i, pem := range o.CAs {
			if !pool.AppendCertsFromPEM([]byte(pem)) {
				return nil, fmt.Errorf("certificate authority %d holds no PEM certificate", i+1)
			}
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if o.AtLeast && o.Now != nil {
		o.withoutClock(t.TLSClientConfig, host)
	}
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := loadPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

func loadPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := ownfiles.ReadPublic(certFile, 1<<20)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ownfiles.ReadSecret(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func (o Options) silence() time.Duration {
	if o.Timeout > 0 {
		return o.Timeout
	}
	return 30 * time.Second
}

func (o Options) pace() Pace { return cmp.Or(o.Pace, DefaultPace) }

func (o Options) patience() time.Duration {
	if o.Patience > 0 {
		return o.Patience
	}
	return 2 * time.Minute
}

// redirect is a request that a server wants to be sent elsewhere. The checks want
// few redirects, never away from TLS, and when resuming never to another host: what
// begins here must end here.
type redirect struct {
	to       *http.Request
	via      []*http.Request // the requests before it, oldest first
	resuming bool
}

func fewRedirects(r redirect) error {
	if len(r.via) >= 5 {
		return errors.New("more than 5 redirects")
	}
	return nil
}

func redirectStaysTLS(r redirect) error {
	return refusal.If(r.via[0].URL.Scheme == "https" && r.to.URL.Scheme != "https", refusal.Redirect, "redirect from https to %s",
		r.to.URL.Scheme)
}

func resumeStaysOnHost(r redirect) error {
	return refusal.If(r.resuming && r.to.URL.Host != r.via[0].URL.Host, refusal.Redirect, "redirect to %s while resuming from %s",
		r.to.URL.Host, r.via[0].URL.Host)
}

// redirectPolicy returns the checks as an [http.Client] takes them.
func redirectPolicy(checks check.List[redirect], resuming bool) func(*http.Request, []*http.Request) error {
	return func(to *http.Request, via []*http.Request) error { return checks.Run(redirect{to, via, resuming}) }
}

// withoutClock verifies certificates on a machine that knows only that it is not
// before some time. A certificate of a trusted issuer had begun when it was issued: it
// may be later than the machine thinks, so "not yet valid" is not a verdict, while
// "expired" still is one.
//
// It replaces the verification of crypto/tls, with the same checks but the time.
func (o Options) withoutClock(c *tls.Config, host string) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	c.InsecureSkipVerify = true // VerifyConnection does it, for every connection
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("tls: the registry shows no certificate")
		}
		name := cmp.Or(s.ServerName, host) // addresses are not sent as server names
		v := x509.VerifyOptions{Roots: c.RootCAs, DNSName: name, Intermediates: x509.NewCertPool(), CurrentTime: o.Now()}
		for i, cert := range s.PeerCertificates {
			if i > 0 {
				v.Intermediates.AddCert(cert)
			}
			if cert.NotBefore.After(v.CurrentTime) {
				v.CurrentTime = cert.NotBefore
			}
		}
		_, err := s.PeerCertificates[0].Verify(v)
		return err
	}
}
