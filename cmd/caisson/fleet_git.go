// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/heads"
	"github.com/caisson-os/caisson/spec/site/service"
)

// gitEvery is how often the fleet's service asks a server of git about one service.
const gitEvery = 5 * time.Minute

// askGit returns who asks git what the services of a site follow now, as 'services diff'
// does.
func (a *app) askGit(cache string) *heads.Heads {
	return &heads.Heads{Every: gitEvery, Wait: content.Glance.Time, Ask: func(ctx context.Context, s *service.Service) (string, error) {
		at, err := cacheDir(cache)
		if err != nil {
			return "", err
		}
		head, err := (&content.Source{Cache: at, Limits: content.Glance, Now: now(), Say: a.say}).Head(ctx, s)
		return head.ID, err
	}}
}

// keepAsking asks git until ctx ends.
func keepAsking(ctx context.Context, asked *heads.Heads, site *servedSite) {
	tick := time.NewTicker(siteEvery)
	defer tick.Stop()
	for {
		asked.Look(ctx, site.Services(), time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
