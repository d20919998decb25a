// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"errors"
	"net/http"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec/refusal"
)

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
	if r.via[0].URL.Scheme == "https" && r.to.URL.Scheme != "https" {
		return refusal.New(refusal.Redirect, "redirect from https to %s", r.to.URL.Scheme)
	}
	return nil
}

func resumeStaysOnHost(r redirect) error {
	if r.resuming && r.to.URL.Host != r.via[0].URL.Host {
		return refusal.New(refusal.Redirect, "redirect to %s while resuming from %s", r.to.URL.Host, r.via[0].URL.Host)
	}
	return nil
}

// redirectPolicy returns the checks as an [http.Client] takes them.
func redirectPolicy(checks check.List[redirect], resuming bool) func(*http.Request, []*http.Request) error {
	return func(to *http.Request, via []*http.Request) error { return checks.Run(redirect{to, via, resuming}) }
}
