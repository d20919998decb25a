// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Post sends a letter to a fleet's service, from a process of its own as all requests.
// An error that is [post.ErrRefused] is the service's last word on it.
func Post(ctx context.Context, b spec.Bootstrap, way track.Way, l post.Letter) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := request{Bootstrap: b, Way: way, Post: &l}
	c, err := (&source{ask: r, opened: time.Now()}).start(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close() // it has ended
	var answer bytes.Buffer
	if _, err = io.Copy(&answer, io.LimitReader(c, maxAnswer)); err == nil && l.Answer != nil {
		_, err = l.Answer.ReadFrom(&answer)
	}
	return err
}

// Hint sends what a loader says, see [spec.Hint], in this process: a loader is alone.
func Hint(ctx context.Context, b spec.Bootstrap, way track.Way, body []byte) error {
	deliver, err := prepare(ctx, request{Bootstrap: b, Way: way,
		Post: &post.Letter{URL: b.Hints + post.HintPath, Body: body, Token: true}}, io.Discard)
	if err != nil {
		return err
	}
	return deliver()
}

const maxAnswer = 4 << 10

// prepare reads what only root may, and returns how a letter is delivered. The nonce of the answer
// is written to out.
func prepare(ctx context.Context, r request, out io.Writer) (deliver func() error, err error) {
	if r.Post.Put != nil {
		return untilTaken(r.Way.Files(track.ReportAuth), func(file string) (func() error, error) {
			s, err := openStore(r, file)
			return func() error { return s.put(ctx, r.Post) }, err
		})
	}
	tokens := []string{""}
	if r.Post.Token {
		tokens = r.Way.Files(track.ReportToken)
	}
	return untilTaken(tokens, func(token string) (func() error, error) {
		client, req, err := letter(ctx, r, token)
		return func() error { return send(client, req, out) }, err
	})
}

// untilTaken reads files of credentials, and returns what makes the try of one after another, for as
// long as they are refused.
func untilTaken(files []string, read func(string) (try func() error, err error)) (deliver func() error, err error) {
	var tries []func() error
	for _, file := range files {
		try, readErr := read(file)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		tries = append(tries, try)
	}
	if len(tries) > 0 {
		err = nil // what cannot be read, another stands in for
	}
	return func() (err error) {
		for _, try := range tries {
			var no *denied
			if err = try(); !errors.As(err, &no) && !track.Denied(err) {
				return err
			}
		}
		return err
	}, err
}

// denied is an answer that wants other credentials.
type denied struct{ error }

func (d *denied) Unwrap() error { return d.error }

// letter returns a letter's request, with the token in a file, and how it is made.
func letter(ctx context.Context, r request, tokenFile string) (*http.Client, *http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Post.URL, bytes.NewReader(r.Post.Body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range r.Post.Header {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", r.Agent)
	if at := (oci.Ref{Host: req.URL.Host}); tokenFile != "" {
		token, err := ownfiles.ReadSecret(tokenFile)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("token for reports: %w", err)
		case req.URL.Scheme != "https" && !at.Loopback():
			return nil, nil, fmt.Errorf("token for reports: it is not sent to %s without TLS", req.URL.Host)
		default:
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		}
	}
	// The service may have a certificate of the site's own authority, as the registry
	// has, or of one that the node's system trusts.
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, pem := range r.Bootstrap.CAs {
		pool.AppendCertsFromPEM([]byte(pem))
	}
	now, _ := r.Clock.Ticking()
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: r.Silence}).DialContext,
		TLSHandshakeTimeout: r.Silence, ResponseHeaderTimeout: r.Silence, MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Time: now},
	}
	if r.Bootstrap.Proxy != "" {
		proxy, err := url.Parse(r.Bootstrap.Proxy)
		if err != nil {
			return nil, nil, fmt.Errorf("proxy: %w", err)
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	// A service that moved is authored again: reports and tokens follow nobody elsewhere.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: stay}, req, nil
}

// send makes the request.
func send(client *http.Client, req *http.Request, out io.Writer) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode/100 == 2 {
		_, err := io.WriteString(out, resp.Header.Get(spec.NonceHeader))
		return err
	}
	return refused(resp.StatusCode, fmt.Errorf("the service answers %d%s", resp.StatusCode, reason(resp.Body)))
}

// refused makes an error the last word where a status is that.
func refused(status int, err error) error {
	switch status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", post.ErrRefused, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return &denied{err}
	}
	return err
}

// reason returns the reason that a service gives for a refusal: as this one and FleetLock's have
// it, or as text.
func reason(body io.Reader) string {
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		text = nil // the status says enough
	}
	var why struct {
		Value string `json:"value"`
	}
	said := string(bytes.TrimSpace(text))
	if json.Unmarshal(text, &why) == nil && why.Value != "" {
		said = why.Value
	}
	if said == "" {
		return ""
	}
	const most = 200
	if r := []rune(said); len(r) > most {
		said = string(r[:most]) + "…"
	}
	return ": " + plain.Line(said)
}

// store is the repository of reports on a registry.
type store struct {
	client *http.Client
	base   *url.URL // of the repository
	agent  string
}

// openStore returns the store that is reached with the credentials of a file: as the fleet's own
// registry is; in plain text only where it is that.
func openStore(r request, auth string) (*store, error) {
	ref, err := oci.ParseRef(r.Post.Put.Registry)
	if err == nil && ref.IsLayout() {
		err = errors.New("reports are put into a registry, not into a directory")
	}
	if err == nil {
		err = oci.CheckName(oci.RepoReport, r.Post.Put.Node)
	}
	if err != nil {
		return nil, err
	}
	o := track.Options(r.Bootstrap, r.Way, auth)
	if own, err := oci.ParseRef(r.Bootstrap.Registry); err != nil || own.Host != ref.Host {
		o.PlainHTTP = false
	}
	t, err := o.Transport(ref.Host)
	if err != nil {
		return nil, err
	}
	base := &url.URL{Scheme: "https", Host: ref.Host, Path: "/v2/" + ref.Repo(oci.RepoReport)}
	if o.PlainHTTP {
		base.Scheme = "http"
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &store{&http.Client{Transport: t, CheckRedirect: stay}, base, r.Agent}, nil
}

// put makes a letter the one that its node's tag names.
func (s *store) put(ctx context.Context, l *post.Letter) error {
	manifest, blobs := oci.DocumentManifest(oci.TypeReport, l.Body)
	for _, b := range blobs {
		if err := s.blob(ctx, b); err != nil {
			return err
		}
	}
	_, err := s.do(ctx, http.MethodPut, s.base.JoinPath("manifests", l.Put.Node),
		oci.Descriptor{MediaType: oci.MediaTypeManifest, Data: manifest}, http.StatusCreated)
	return err
}

// blob uploads a blob unless it is there, as the empty one is after the first report.
func (s *store) blob(ctx context.Context, d oci.Descriptor) error {
	if _, err := s.do(ctx, http.MethodHead, s.base.JoinPath("blobs", d.Digest), oci.Descriptor{}, http.StatusOK); err == nil {
		return nil // any error but that it is missing meets the upload, too
	}
	resp, err := s.do(ctx, http.MethodPost, s.base.JoinPath("blobs", "uploads", "/"), oci.Descriptor{}, http.StatusAccepted)
	if err != nil {
		return err
	}
	to, err := resp.Location()
	if err != nil {
		return fmt.Errorf("the registry names no address for the upload of a report: %w", err)
	}
	if to.Scheme != s.base.Scheme || to.Host != s.base.Host {
		return fmt.Errorf("the registry sends a report to %.80q: it stays here", to.Host)
	}
	query := to.Query()
	query.Set("digest", d.Digest)
	to.RawQuery = query.Encode()
	_, err = s.do(ctx, http.MethodPut, to, oci.Descriptor{MediaType: "application/octet-stream", Data: d.Data}, http.StatusCreated)
	return err
}

// do makes one request with a body of a type, which has to be answered by a status.
func (s *store) do(ctx context.Context, method string, to *url.URL, body oci.Descriptor, want int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body.Data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", s.agent)
	if body.MediaType != "" {
		req.Header.Set("Content-Type", body.MediaType)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode != want {
		return nil, refused(resp.StatusCode, fmt.Errorf("the registry answers %d to %s of a report%s", resp.StatusCode,
			method, reason(resp.Body)))
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return resp, err
}
