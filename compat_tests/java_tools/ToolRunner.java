// Runs Apache Kafka's command-line tools one after the other in one JVM: each costs milliseconds instead of seconds.
// A request is lines on stdin: main class, number of arguments, each argument and then the tool's stdin in base64.
// The answer on stdout is one line: exit status, stdout and stderr in base64.
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Set;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import org.apache.kafka.common.utils.internals.Exit;

public class ToolRunner {
    // Tools that count in static fields: each run gets classes of its own.
    static final Set<String> STATEFUL = Set.of("org.apache.kafka.tools.consumer.ConsoleConsumer");
    static final int TIMEOUT_SECONDS = 300;

    static volatile CompletableFuture<Integer> status = new CompletableFuture<>();
    static final List<Runnable> atExit = new ArrayList<>();

    static String decode(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    // A tool that "exits" stops here for ever: unwinding would be caught by its own error handling.
    static void exited(int code) {
        status.complete(code);
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static void runHooks() {
        for (Runnable hook : atExit) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
            try {
                thread.join(5000);
            } catch (InterruptedException e) {
                return;
            }
        }
        atExit.clear();
    }

    static ClassLoader loaderFor(String name) throws Exception {
        if (!STATEFUL.contains(name))
            return ToolRunner.class.getClassLoader();
        URL[] urls = java.util.Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
            .map(File::new).map(file -> {
                try {
                    return file.toURI().toURL();
                } catch (java.net.MalformedURLException e) {
                    throw new IllegalStateException(e);
                }
            }).toArray(URL[]::new);
        // Exit and the rest of kafka-clients are shared, so that exit() is caught: only the tools are loaded anew.
        return new URLClassLoader(urls, ToolRunner.class.getClassLoader()) {
            @Override
            protected Class<?> loadClass(String wanted, boolean resolve) throws ClassNotFoundException {
                if (!wanted.startsWith("org.apache.kafka.tools.consumer."))
                    return super.loadClass(wanted, resolve);
                Class<?> found = findLoadedClass(wanted);
                return found != null ? found : findClass(wanted);
            }
        };
    }

    static void run(String name, String[] arguments) {
        try {
            Class<?> main = Class.forName(name, true, loaderFor(name));
            Thread.currentThread().setContextClassLoader(main.getClassLoader());
            var method = main.getDeclaredMethod("main", String[].class);
            method.setAccessible(true);
            method.invoke(null, (Object) arguments);
            status.complete(0);
        } catch (InvocationTargetException thrown) {
            System.err.print("Exception in thread \"main\" ");
            thrown.getCause().printStackTrace();
            status.complete(1);
        } catch (Exception failed) {
            failed.printStackTrace();
            status.complete(125);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            if (message != null)
                System.err.println(message);
            exited(code);
        });
        Exit.setHaltProcedure((code, message) -> exited(code));
        Exit.setShutdownHookAdder((hookName, hook) -> atExit.add(hook));
        String name;
        while ((name = requests.readLine()) != null) {
            String[] arguments = new String[Integer.parseInt(requests.readLine())];
            for (int i = 0; i < arguments.length; i++)
                arguments[i] = decode(requests.readLine());
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(requests.readLine())));
            var out = new ByteArrayOutputStream();
            var err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            status = new CompletableFuture<>();
            String toRun = name;
            Thread thread = new Thread(() -> run(toRun, arguments), "tool");
            thread.setDaemon(true);
            thread.start();
            int code;
            try {
                code = status.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            } catch (TimeoutException late) {
                code = 124;
            }
            runHooks();
            System.out.flush();
            System.err.flush();
            var encoder = Base64.getEncoder();
            answers.println(code + " " + encoder.encodeToString(out.toByteArray()) + "-"
                + " " + encoder.encodeToString(err.toByteArray()) + "-");
            answers.flush();
            System.setErr(errors);
        }
        Runtime.getRuntime().halt(0);
    }
}
