// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd, of the version that kube-apiserver was tested with.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
