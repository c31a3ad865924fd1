// resolves HOST: exit 0 when HOST has an address, 1 when it has none.
//
// For the init container of training-operator, whose shell loop waits until the master's name resolves: the
// nslookup of busybox exits non-zero for names that resolve, so that loop would never end.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"
)

const timeout = 5 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: resolves HOST")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, address := range addresses {
		fmt.Println(address)
	}
}
