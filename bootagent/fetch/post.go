// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/report"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// posted is a report to send.
type posted struct {
	URL    string
	Report []byte
}

// Post sends a signed report to a fleet's service, from a process of its own as all
// requests. An error that is [report.ErrRefused] is the service's last word on it.
func Post(ctx context.Context, b spec.Bootstrap, way track.Way, to string, raw []byte) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := request{Bootstrap: b, Way: way, Post: &posted{to, raw}}
	c, err := (&source{ask: r, opened: time.Now()}).start(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close() // it has ended
	_, err = io.Copy(io.Discard, io.LimitReader(c, maxAnswer))
	return err
}

const (
	reportPath  = "/v1/report"   // of the service
	reportToken = "report.token" // among the credentials: what a service asks of this node
	maxAnswer   = 4 << 10
)

// prepare reads what only root may, and returns the request and how it is made.
func (p *posted) prepare(ctx context.Context, r request) (*http.Client, *http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+reportPath, bytes.NewReader(p.Report))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", r.Agent)
	token, err := ownfiles.ReadSecret(filepath.Join(r.Credentials, reportToken))
	switch {
	case r.Credentials == "" || errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, nil, fmt.Errorf("token for reports: %w", err)
	default:
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
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
	// A service that moved is authored anew: reports and tokens follow nobody elsewhere.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: stay}, req, nil
}

// send makes the request.
func send(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode/100 == 2 {
		return nil
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, 200))
	if err != nil {
		said = nil // the status says enough
	}
	err = fmt.Errorf("the service answers %d: %s", resp.StatusCode, plain.Line(strings.TrimSpace(string(said))))
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", report.ErrRefused, err)
	}
	return err
}
